// The stream from moorage-link as moorage-outpost reads it: sessions, all their kinds of channels,
// the fields of requests. A link here is not an enemy, but may be confused or another release. The
// input is a script of it, and of the warden whose line outpost holds. What waits stays bounded,
// and no handler throws.
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <boost/json.hpp>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/files.h"
#include "base/wire/journal.h"
#include "fuzz.h"
#include "outpost/request_fields.h"
#include "outpost/stream/channels.h"
#include "outpost/stream/journal.h"
#include "outpost/stream/network.h"
#include "outpost/stream/session.h"
#include "scripted_peer.h"

namespace moorage {
namespace {

namespace json = boost::json;
using outpost::Channel;
using outpost::Wire;

constexpr int kMaxSteps = 64;
constexpr const char* kRequests[] = {R"({"what":"text","bytes":70000})",
                                     R"({"what":"file"})",
                                     R"({"what":"pipe"})",
                                     R"({"what":"upload"})",
                                     R"({"what":"relay"})",
                                     R"({"what":"network"})",
                                     R"({"what":"accept"})",
                                     R"({"what":"later"})",
                                     R"({"what":"journal","offset":0})",
                                     R"({"what":"journal","offset":33})"};
constexpr const char* kLines[] = {"listen 198.18.0.1 443", "refused 198.18.0.1 443 98",
                                  "listening 198.18.0.1 443", "listen 198.18.0.2 80"};

void make_journal(const std::string& path) {
  std::string bytes;
  const auto add = [&bytes](base::FrameKind kind, const std::string& payload) {
    const auto head =
        base::encode_frame_header({kind, static_cast<uint32_t>(payload.size()), 1, 0}, payload);
    bytes.append(head.data(), head.size()).append(payload);
  };
  add(base::FrameKind::started, "{}");
  add(base::FrameKind::standard_output, std::string(9000, 'o'));
  add(base::FrameKind::end, "{}");
  base::write_file(path, bytes, 0600);
}

class World {
 public:
  World() : World(test::socket_pair()) {}
  ~World() {
    session_.reset();
    base::remove_tree(path_);
  }
  bool over() const { return over_; }

  void step(fuzz::Script& script) {
    switch (script.below(12)) {
      case 0:
        link_.add_raw(script.piece());
        break;
      case 1: {
        const uint8_t kind = script.byte();
        const uint32_t number = script.byte();
        link_.add_raw_frame(kind, number, script.piece());
        break;
      }
      case 2:
      case 3:
        link_.mux.open(kRequests[script.below(std::size(kRequests))]);
        break;
      case 4:
        if (const auto request = script.piece(); !request.empty()) link_.mux.open(request);
        break;
      case 5: {
        const uint32_t number = script.byte();
        link_.send(number, script.piece());
        break;
      }
      case 6: {
        const uint32_t number = script.byte();
        link_.send(number, fuzz::relayed(script, kLines, {}));
        break;
      }
      case 7:
        link_.mux.end(script.byte());
        break;
      case 8:
        link_.mux.reset(script.byte(), Error(Code::conflict, "reason"));
        break;
      default:
        there(script);
    }
    exchange();
    fuzz::require(link_.mux.output().size() < 32 << 20, "what waits is bounded");
  }

 private:
  explicit World(std::pair<base::Fd, base::Fd> ends)
      : path_(fuzz::scratch_directory() + "/outpost"),
        made_((base::make_directories(path_), path_)),
        warden_(base::listen_unix(path_ + "/warden.sock", 0600)),
        network_(loop_, path_ + "/warden.sock"),
        link_(base::Mux::Side::opener, std::move(ends.first)) {
    fcntl(warden_.get(), F_SETFL, O_NONBLOCK);
    make_journal(path_ + "/journal");
    session_ = std::make_unique<outpost::Session>(
        loop_, std::move(ends.second),
        [this](std::string_view request, Wire wire) { return open(request, wire); },
        [this] { over_ = true; });
  }
  std::unique_ptr<Channel> open(std::string_view text, Wire wire) {
    const json::object request = outpost::parse_request(text);
    const std::string what = outpost::text_in(request, "what");
    if (what == "text") {
      const uint64_t bytes = outpost::number_in(request, "bytes");
      return outpost::text_answer(wire, std::string(bytes % 300'000, 't'));
    }
    if (what == "file")
      return std::make_unique<outpost::Answer>(wire, base::open_file(path_ + "/journal", O_RDONLY));
    if (what == "network") return network_.network(wire);
    if (what == "accept") return network_.accept(wire);
    if (what == "relay")
      return std::make_unique<outpost::Relay>(loop_, wire, path_ + "/warden.sock");
    if (what == "later") {
      auto later = std::make_unique<outpost::Later>(wire);
      later_ = later->self();
      return later;
    }
    if (what == "journal") {
      return std::make_unique<outpost::JournalChannel>(
          loop_, wire,
          outpost::JournalChannel::Options{
              path_ + "/journal", outpost::number_in(request, "offset"), [] { return false; }});
    }
    return upload(what, outpost::flag_in(request, "discard"), wire);
  }
  std::unique_ptr<Channel> upload(const std::string& what, bool discard, Wire wire) {
    if (what != "upload" && what != "pipe") throw Error(Code::invalid_argument, "no such request");
    base::Pipe pipe = base::make_pipe();
    if (what == "pipe") pipes_.push_back(std::move(pipe.read_end));
    base::Fd target =
        what == "pipe" ? std::move(pipe.write_end) : base::Fd(memfd_create("upload", MFD_CLOEXEC));
    auto channel =
        std::make_unique<outpost::Upload>(loop_, wire, std::move(target), what == "pipe");
    channel->on_complete([weak = channel->self()](const base::Fd&) {
      if (const auto later = weak.lock()) later->answer(outpost::text_answer(later->wire(), "{}"));
    });
    if (discard) channel->discard();
    return channel;
  }

  // What happens on the machine there.
  void there(fuzz::Script& script) {
    switch (script.below(5)) {
      case 0:
        return accept_one();
      case 1:
        return say_on_line(script);
      case 2:
        if (const auto later = later_.lock()) {
          if (script.byte() & 1)
            later->answer(outpost::text_answer(later->wire(), std::string(script.piece())));
          else
            later->fail(Error(Code::conflict, std::string(script.piece())));
        }
        return;
      case 3:
        if (!pipes_.empty()) {
          std::array<char, 8192> piece;
          fcntl(pipes_.back().get(), F_SETFL, O_NONBLOCK);
          if (read(pipes_.back().get(), piece.data(), piece.size()) <= 0) pipes_.pop_back();
        }
        return;
      default:
        if (!accepted_.empty()) {
          const std::string_view text = script.piece();
          ::send(accepted_.back().get(), text.data(), text.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
          if (script.byte() & 1) accepted_.pop_back();
        }
    }
  }
  // Of a relay, or with the line of the network.
  void accept_one() {
    base::Fd socket(accept4(warden_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket) return;
    if (base::wait_readable(socket.get(), 0)) {
      base::Received received = base::receive_with_fds(socket.get(), 4096);
      if (!received.fds.empty()) line_ = std::move(received.fds[0]);
    }
    accepted_.push_back(std::move(socket));
  }
  void say_on_line(fuzz::Script& script) {
    if (!line_) return;
    const uint8_t how = script.byte();
    std::string text(how & 1 ? kLines[script.below(std::size(kLines))] : script.piece());
    if (how & 2) text = "dns";
    if (text.empty()) return line_.reset();
    std::array<base::Fd, 2> held{base::Fd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)),
                                 base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0))};
    const std::array fds{held[0].get(), held[1].get(), held[1].get()};
    const size_t count = how & 2 ? 3 : how & 4 ? 1 : 0;
    fuzz::refused([&] { base::send_with_fds(line_.get(), text, {fds.data(), count}); });
  }

  void exchange() {
    link_.write();
    for (int round = 0; round < 2; ++round)  // it reads, then it writes
      test::run_for(loop_, std::chrono::milliseconds(0));
    link_.receive([](const base::MuxFrame&) {});
  }

  const std::string path_;
  const std::string made_;
  base::Loop loop_;
  base::Fd warden_;
  std::vector<base::Fd> accepted_;
  std::vector<base::Fd> pipes_;
  base::Fd line_;
  std::weak_ptr<outpost::Later> later_;
  outpost::Network network_;
  fuzz::ScriptedPeer link_;
  bool over_ = false;
  std::unique_ptr<outpost::Session> session_;
};

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  World world;
  for (int steps = 0; steps < kMaxSteps && !script.over() && !world.over(); ++steps)
    world.step(script);
  return 0;
}
