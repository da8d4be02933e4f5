// The stream from another machine and all that reads it in a worker of moorage-link: answers to
// calls, a journal, packs, the network. The input is a script of that machine, and of the daemon
// and egress here. The channels' kinds are known to it, as to any machine, so most frames are
// valid; others are raw bytes. What waits here stays bounded, the journal stays readable, and no
// handler throws.
#include <fcntl.h>
#include <sys/socket.h>

#include <boost/json.hpp>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/os/event_loop.h"
#include "base/os/files.h"
#include "base/wire/journal.h"
#include "base/wire/network_relay.h"
#include "fuzz.h"
#include "link/call.h"
#include "link/journal_intake.h"
#include "link/network.h"
#include "link/recovery/greeting.h"
#include "link/stream.h"
#include "link/sync_intake.h"
#include "scripted_peer.h"
#include "socket_run.h"

namespace moorage {
namespace {

namespace json = boost::json;

constexpr int kMaxSteps = 64;
constexpr const char* kKinds[] = {"journal", "sync", "network", "accept", "hello"};
constexpr const char* kPlaces[] = {"198.18.0.1 443", "198.18.0.2 80", "127.0.0.53 53",
                                   "127.0.0.1 22"};
constexpr const char* kLines[] = {"listening 198.18.0.1 443", "refused 198.18.0.1 443 98",
                                  "listening 198.18.0.2 80", "listen 198.18.0.1 443", "dns"};

// All inputs share it: making a namespace takes long. Empty without root.
link::InsideSockets* inside_sockets() {
  static link::InsideSockets* const made = []() -> link::InsideSockets* {
    try {
      static link::StandIn& stand_in = *new link::StandIn(link::make_stand_in());
      return new link::InsideSockets(stand_in.name_space.duplicate(), [] {});
    } catch (const Error&) {
      return nullptr;
    }
  }();
  return made;
}

class World : public link::JournalHost {
 public:
  World()
      : path_(fuzz::scratch_directory() + "/link"),
        syncs_(loop_, path_),
        network_(loop_, inside_sockets(), [] { return uint32_t{7}; }) {
    auto line = test::socket_pair(SOCK_SEQPACKET);
    egress_ = std::move(line.first);
    if (inside_sockets()) network_.set_line(std::move(line.second));
    keep_journal();
    connect();
  }
  ~World() override {
    cut();
    base::remove_tree(path_);
  }

  void step(fuzz::Script& script) {
    switch (script.below(16)) {
      case 0:
        peer_->add_raw(script.piece());
        break;
      case 1: {
        const uint8_t kind = script.byte();
        const uint32_t number = channel(script);
        peer_->add_raw_frame(kind, number, script.piece());
        break;
      }
      case 2: {
        const uint32_t number = channel(script);
        peer_->send(number, script.piece());
        break;
      }
      case 3:
        peer_->mux.end(channel(script));
        break;
      case 4: {
        const uint32_t number = channel(script);
        peer_->mux.reset(number, Error(static_cast<Code>(script.below(8)), "reason"));
        break;
      }
      case 5:
      case 6:
        peer_->send(newest("journal"), journal_frame(script));
        break;
      case 7: {
        const char* kind = script.byte() & 1 ? "network" : "accept";
        peer_->send(newest(kind), fuzz::relayed(script, kLines, kPlaces));
        break;
      }
      case 8:
        peer_->send(newest("sync"), script.piece());
        break;
      case 9:
        peer_->send(newest("hello"), script.piece());
        break;
      default:
        here(script);
    }
    peer_->write();
    run();
    receive();
  }

  void check() {
    fuzz::require(!stream_ || stream_->broken() || peer_->mux.channels() <= base::kMuxMaxChannels,
                  "channels have their limit");
    fuzz::require(network_.connections() <= base::kMaxRelayed, "connections have their limit");
    const base::Fd file = base::open_file(path_ + "/output", O_RDONLY);
    base::JournalReader reader(file.get());
    while (reader.next()) continue;
    fuzz::require(reader.file_position() == base::read_file(path_ + "/output").size(),
                  "only whole frames are in the journal");
    for (const std::string& name : base::list_directory(path_ + "/" + base::kIncoming)) {
      fuzz::require(name == "last" || name == "part" || name.ends_with(".pack"),
                    "only packs come in");
    }
  }

  void sync_for_end(std::function<void()> done) override { ends_.push_back(std::move(done)); }
  void journal_finished(const std::string&) override { over_ = true; }
  void journal_failed(const std::string&, const Error& reason) override {
    fuzz::require(!reason.message().empty(), "an error says what is wrong");
    over_ = true;
  }

 private:
  void keep_journal() {
    over_ = false;
    base::Fd file = base::open_file(path_ + "/output", O_WRONLY | O_APPEND | O_CREAT, 0600);
    journal_ = std::make_shared<link::Journal>(loop_, *this,
                                               link::JournalFile{"ex_1", std::move(file), 1 << 20});
  }

  void connect() {
    auto ends = test::socket_pair();
    peer_.emplace(base::Mux::Side::answerer, std::move(ends.first));
    stream_ = std::make_unique<link::Stream>(
        loop_, std::make_unique<test::SocketRun>(std::move(ends.second)), [](const Error&) {});
    newest_.clear();
    syncs_.attach(*stream_);
    if (journal_->running()) journal_->follow(*stream_);
    network_.attach(*stream_);
    run();
    receive();
  }
  // As a worker does it when the stream has ended.
  void cut() {
    peer_->socket.reset();
    run();
    stream_->give_up(Error(Code::unavailable, "cut"));
    syncs_.detach();
    journal_->detach();
    network_.detach();
    calls_.clear();
    stream_.reset();
  }

  // What the daemon and egress do.
  void here(fuzz::Script& script) {
    const bool connected = !stream_->broken();
    switch (script.below(7)) {
      case 0:
        syncs_.request([](const Error*) {});
        return;
      case 1:
        if (connected) calls_.push_back(call());
        return;
      case 2: {
        const std::string request = std::string("listen ") + kPlaces[script.below(2)];
        ::send(egress_.get(), request.data(), request.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        return;
      }
      case 3:
        for (const auto& done : std::exchange(ends_, {})) done();
        return;
      case 4:
        cut();
        if (over_) keep_journal();
        return connect();
      case 5:
        if (!calls_.empty()) calls_.erase(calls_.begin());
        return;
      default:
        listen();
    }
  }
  std::shared_ptr<link::Call> call() {
    const auto learn = [](const json::object& answer, const Error* error) {
      if (error) return fuzz::require(!error->message().empty(), "an error says what is wrong");
      base::LinkStatus status;
      link::read_facts(answer, status);
      fuzz::require(base::link_status_text(status).size() < 2000, "a status is small");
      for (const std::string& path : link::read_lost(answer))
        fuzz::require(path.find("/..") == std::string::npos, "a lost path is below its mount");
    };
    return link::Call::start(loop_, *stream_, {.request = {{"what", "hello"}}}, learn);
  }
  void listen() {
    for (int n = 0; n < 4 && base::wait_readable(egress_.get(), 0); ++n) {
      base::Received received = base::receive_with_fds(egress_.get(), base::kMaxLineMessage, 3);
      if (received.bytes.empty()) return;
      for (base::Fd& fd : received.fds) listeners_.push_back(std::move(fd));
    }
    for (const base::Fd& listener : listeners_) {
      base::Fd socket(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) continue;
      ::send(socket.get(), "hello", 5, MSG_DONTWAIT | MSG_NOSIGNAL);
      accepted_.push_back(std::move(socket));
    }
  }

  std::string journal_frame(fuzz::Script& script) {
    const uint8_t form = script.byte();
    const auto kind = static_cast<base::FrameKind>(1 + form % 7);
    std::string payload(script.piece());
    if (kind == base::FrameKind::gap && payload.size() < 8)
      payload = base::encode_gap({payload.empty() ? 0U : 1U, script.byte(), 1, 2});
    const base::FrameHeader header{kind, static_cast<uint32_t>(payload.size()), 1'000, output_};
    if (base::is_output(kind)) output_ += payload.size();
    if (const auto gap = base::decode_gap(payload); gap && kind == base::FrameKind::gap)
      output_ += gap->dropped_bytes;
    if (form & 128) ++output_;  // the next one lies
    const auto head = base::encode_frame_header(header, payload);
    return std::string(head.data(), head.size()) + payload;
  }
  uint32_t newest(const std::string& kind) const {
    const auto found = newest_.find(kind);
    return found == newest_.end() ? 1 : found->second;
  }
  uint32_t channel(fuzz::Script& script) const {
    const uint8_t number = script.byte();
    return number < 200 ? number : newest(kKinds[number % std::size(kKinds)]);
  }

  void run() { test::run_for(loop_, std::chrono::milliseconds(0)); }
  void receive() {
    peer_->receive([this](const base::MuxFrame& frame) {
      if (frame.kind != base::MuxKind::open) return;
      const json::object request = json::parse(frame.payload).as_object();
      newest_[std::string(request.at("what").as_string())] = frame.channel;
    });
  }

  const std::string path_;
  base::Loop loop_;
  link::SyncIntake syncs_;
  link::Network network_;
  base::Fd egress_;
  std::vector<base::Fd> listeners_;
  std::vector<base::Fd> accepted_;
  std::shared_ptr<link::Journal> journal_;
  std::vector<std::function<void()>> ends_;  // that wait for a sync
  std::vector<std::shared_ptr<link::Call>> calls_;
  std::unique_ptr<link::Stream> stream_;
  std::optional<fuzz::ScriptedPeer> peer_;  // the machine there
  std::map<std::string, uint32_t> newest_;
  uint64_t output_ = 0;
  bool over_ = false;
};

}  // namespace
}  // namespace moorage

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace moorage;
  fuzz::Script script(data, size);
  World world;
  for (int steps = 0; steps < kMaxSteps && !script.over(); ++steps) world.step(script);
  world.check();
  return 0;
}
