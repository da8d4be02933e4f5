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

#include "base/little_endian.h"
#include "base/os/event_loop.h"
#include "base/os/files.h"
#include "base/wire/journal.h"
#include "base/wire/mux.h"
#include "base/wire/network_relay.h"
#include "fuzz.h"
#include "outpost/request_fields.h"
#include "outpost/stream/channels.h"
#include "outpost/stream/journal.h"
#include "outpost/stream/network.h"
#include "outpost/stream/session.h"

extern "C" ssize_t __real_write(int fd, const void* bytes, size_t size);
// An event loop writes there only what a handler threw, and goes on.
extern "C" ssize_t __wrap_write(int fd, const void* bytes, size_t size) {
  const ssize_t written = __real_write(fd, bytes, size);
  if (fd == STDERR_FILENO) abort();
  return written;
}

namespace moorage {
namespace {

namespace json = boost::json;
using base::MuxKind;
using base::RelayKind;
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

std::string raw_frame(MuxKind kind, uint32_t channel, std::string_view payload) {
  std::string frame;
  base::append_number(frame, static_cast<uint32_t>(kind));
  base::append_number(frame, channel);
  base::append_number(frame, static_cast<uint32_t>(payload.size()));
  return frame.append(payload);
}

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
  World()
      : path_(fuzz::scratch_directory() + "/outpost"),
        made_((base::make_directories(path_), path_)),
        warden_(base::listen_unix(path_ + "/warden.sock", 0600)),
        network_(loop_, path_ + "/warden.sock") {
    fcntl(warden_.get(), F_SETFL, O_NONBLOCK);
    make_journal(path_ + "/journal");
    std::array<int, 2> ends{};
    base::check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data()),
                "a pair");
    link_.reset(ends[0]);
    session_ = std::make_unique<outpost::Session>(
        loop_, base::Fd(ends[1]),
        [this](std::string_view request, Wire wire) { return open(request, wire); },
        [this] { over_ = true; });
  }
  ~World() {
    session_.reset();
    base::remove_tree(path_);
  }
  bool over() const { return over_; }

  void step(fuzz::Script& script) {
    switch (script.below(12)) {
      case 0:
        to_outpost_ += script.piece();
        raw_ = true;
        break;
      case 1:
        to_outpost_ +=
            raw_frame(static_cast<MuxKind>(script.byte()), script.byte(), script.piece());
        raw_ = true;
        break;
      case 2:
      case 3:
        mux_.open(kRequests[script.below(std::size(kRequests))]);
        break;
      case 4:
        if (const auto request = script.piece(); !request.empty()) mux_.open(request);
        break;
      case 5:
        send(script.byte(), script.piece());
        break;
      case 6:
        send(script.byte(), relayed(script));
        break;
      case 7:
        mux_.end(script.byte());
        break;
      case 8:
        mux_.reset(script.byte(), Error(Code::conflict, "reason"));
        break;
      default:
        there(script);
    }
    exchange();
    fuzz::require(mux_.output().size() < 32 << 20, "what waits is bounded");
  }

 private:
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

  static std::string relayed(fuzz::Script& script) {
    const uint8_t what = script.byte();
    const auto kind = static_cast<RelayKind>(1 + what % 3);
    if (what & 128) return base::relay_frame(kind, script.piece());
    if (kind == RelayKind::line)
      return base::relay_frame(kind, kLines[script.below(std::size(kLines))]);
    return base::relay_frame(kind, "ABCDEF" + std::string(20, 'q'));
  }
  void send(uint32_t channel, std::string_view bytes) {
    mux_.send(channel, bytes.substr(0, mux_.room(channel)));
  }
  void run() {
    base::Timer stop(loop_);
    stop.start(std::chrono::milliseconds(0), [this] { loop_.stop(); });
    loop_.run();
  }
  void exchange() {
    to_outpost_ += std::exchange(mux_.output(), {});
    const ssize_t sent =
        ::send(link_.get(), to_outpost_.data(), to_outpost_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) to_outpost_.erase(0, static_cast<size_t>(sent));
    run();  // reads
    run();  // writes
    const bool refused = fuzz::refused([this] {
      std::array<char, 16 << 10> piece;
      ssize_t count = 0;
      while ((count = ::recv(link_.get(), piece.data(), piece.size(), MSG_DONTWAIT)) > 0)
        take({piece.data(), static_cast<size_t>(count)});
    });
    fuzz::require(!refused || raw_, "what this side sends keeps the rules");
  }
  void take(std::string_view bytes) {
    while (auto frame = mux_.next(bytes)) {
      if (frame->kind == MuxKind::data) mux_.consumed(frame->channel, frame->payload.size());
    }
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
  base::Fd link_;
  base::Mux mux_{base::Mux::Side::opener};  // of link
  std::string to_outpost_;
  bool raw_ = false;
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
