#include "link/worker.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/os/event_loop.h"
#include "base/os/files.h"
#include "base/wire/link_config.h"
#include "base/wire/outpost_requests.h"
#include "link/fate.h"
#include "link/front.h"
#include "link/journal_intake.h"
#include "link/keeper_line.h"
#include "link/network.h"
#include "link/packer.h"
#include "link/recovery/farewell.h"
#include "link/recovery/greeting.h"
#include "link/recovery/restore.h"
#include "link/start_up.h"
#include "link/sync_intake.h"
#include "link/uplink.h"
#include "link/worker_process.h"

namespace moorage::link {
namespace {

namespace json = boost::json;
using std::chrono::milliseconds;

constexpr milliseconds kSyncAgain{1000};  // after one that failed
constexpr size_t kMaxPaths = 10'000;
constexpr unsigned kLastRounds = 5;  // of syncs, for ends of commands that come meanwhile
constexpr const char* kDone = "{}";

class Worker : public FrontHost, public JournalHost, public UplinkHost {
 public:
  Worker(base::LinkConfig config, int line, Packer& packer, InsideSockets* sockets,
         Inherited inherited);
  void run() {
    if (fate_.begun()) uplink_.keep_trying();
    uplink_.connect();
    tick();
    loop_.run();
  }

  // FrontHost
  bool answers(std::string_view path) const override;
  void handle(FrontRequest request, Answer answer) override;
  Stream& running_sandbox() override;
  bool comes_back() override;
  void keep_journal(JournalFile journal) override;
  void command_asked(const std::string& tag) override { follow(tag, true); }
  void command_started(const std::string& tag) override { follow(tag, false); }
  void command_refused(const std::string& tag) override { drop_journal(tag); }
  // JournalHost
  void sync_for_end(std::function<void()> done) override;
  void journal_finished(const std::string& tag) override { drop_journal(tag); }
  void journal_failed(const std::string& tag, const Error& reason) override;
  // UplinkHost
  void on_up(const json::object& greeting) override;
  void on_sign(const json::object& greeting) override;
  void on_down(const Error& reason) override;
  uint64_t acknowledged() const override { return syncs_.last(); }
  bool may_create() const override { return !fate_.begun(); }
  // An idle machine comes to the end of its life. The daemon stops an idle sandbox before that.
  bool needed() const override {
    return !fate_.begun() || any_running(journals_) || farewell_.under_way();
  }

 private:
  using Waiting = std::vector<Answer>;
  static void answer_all(const Waiting& waiting, const Error* error);
  void connect_asked(Answer answer);
  void trees_sent(const Error* error);
  void begin_asked(const std::string& body, Answer answer);
  void begun(const Error* error);
  void changed_asked(const json::object& body, Answer answer);
  void send_changed();
  void sync_asked(Answer answer);
  void keep_asked(FrontRequest request, const Answer& answer);
  void follows_asked(const json::object& body, const Answer& answer) const;
  void network_given(FrontRequest request, const Answer& answer);
  void destroy_asked(const Answer& answer);
  void shutdown_asked(const json::object& body, Answer answer);
  void wake_for_end(const json::object& body, Answer answer);
  void fetch_rest(unsigned rounds);
  void lose(const std::string& reason);
  void serve_sandbox();
  void follow_all();
  std::string status() const;
  void learn(const json::object& greeting);
  void up();
  void follow(const std::string& tag, bool expected);
  void drop_journal(const std::string& tag);
  void tick();
  Error why_not() const;

  base::Loop loop_;
  const base::LinkConfig config_;
  const int line_;
  StartUp start_up_;
  SyncIntake syncs_;
  const Fate fate_;
  Network network_;
  std::map<std::string, std::shared_ptr<Journal>> journals_;
  bool trees_there_ = false;  // on this stream
  bool runs_ = false;         // the warden there, as far as we know
  base::LinkStatus known_;
  Waiting connecting_;
  Waiting beginning_;
  Waiting changing_;
  std::vector<std::string> changed_paths_;  // of those
  Restore restore_;
  base::Timer tick_;
  base::Timer sync_again_;
  base::Timer exit_;
  std::vector<std::function<void()>> ends_;  // that wait for a sync that failed
  Uplink uplink_;
  Farewell farewell_;
  Front front_;
};

Worker::Worker(base::LinkConfig config, int line, Packer& packer, InsideSockets* sockets,
               Inherited inherited)
    : config_(std::move(config)),
      line_(line),
      start_up_(loop_, config_, packer),
      syncs_(loop_, config_.directory),
      fate_(config_.directory),
      network_(loop_, sockets, [this] { return mark_of_running(journals_); }),
      restore_(loop_, start_up_, syncs_),
      tick_(loop_),
      sync_again_(loop_),
      exit_(loop_),
      uplink_(loop_, *this, config_, [line] { return ask_for_key(line); }),
      farewell_(loop_, syncs_, uplink_),
      front_(loop_, *this, std::move(inherited.listener)) {
  for (JournalFile& file : inherited.journals) {
    const std::string tag = file.tag;
    journals_[tag] = std::make_shared<Journal>(loop_, *this, std::move(file));
  }
  if (inherited.network_line && sockets) network_.set_line(std::move(inherited.network_line));
}

bool Worker::answers(std::string_view path) const {
  return path.starts_with("/moorage/") || path == "/health";
}

void Worker::handle(FrontRequest request, Answer answer) {
  const std::string& path = request.path;
  if (path == "/health") return answer(kDone, nullptr);
  if (path == "/moorage/protocol") return answer(own_protocols(), nullptr);
  if (path == "/moorage/remote") return answer(status(), nullptr);
  if (path == "/moorage/connect") return connect_asked(std::move(answer));
  if (path == "/moorage/begin") return begin_asked(request.body, std::move(answer));
  if (path == "/moorage/changed") return changed_asked(request.fields(), std::move(answer));
  if (path == "/moorage/sync") return sync_asked(std::move(answer));
  if (path == "/moorage/keep") return keep_asked(std::move(request), answer);
  if (path == "/moorage/follows") return follows_asked(request.fields(), answer);
  if (path == "/moorage/network") return network_given(std::move(request), answer);
  if (path == "/moorage/destroy") return destroy_asked(answer);
  if (path == "/moorage/shutdown") return shutdown_asked(request.fields(), std::move(answer));
  const Error error(Code::not_found, "no such request of a sandbox on another machine: " + path);
  answer({}, &error);
}

Error Worker::why_not() const {
  if (uplink_.reason()) return *uplink_.reason();
  return Error(Code::unavailable, "the other machine is not reached yet");
}

Stream& Worker::running_sandbox() {
  // Its end is known here before everyone has been told.
  if (Stream* stream = uplink_.stream(); stream && runs_ && !stream->broken()) return *stream;
  if (uplink_.stream())
    throw Error(Code::unavailable, "the sandbox on the other machine has not started yet");
  const Error reason = why_not();
  throw Error(Code::unavailable, reason.message(), reason.hint());
}

bool Worker::comes_back() {
  const Stream* stream = uplink_.stream();
  if (!uplink_.keeps_trying() || farewell_.under_way()) return false;
  if (stream && runs_ && !stream->broken()) return false;
  uplink_.use();
  return true;
}

void Worker::answer_all(const Waiting& waiting, const Error* error) {
  for (const Answer& answer : waiting) answer(kDone, error);
}

// ---- from nothing to a running sandbox

void Worker::connect_asked(Answer answer) {
  if (uplink_.stream() && (trees_there_ || runs_)) return answer(kDone, nullptr);
  connecting_.push_back(std::move(answer));
  uplink_.connect();
}

void Worker::learn(const json::object& greeting) {
  read_facts(greeting, config_, known_);
  runs_ = runs_ || says(greeting, "started");
}

void Worker::on_up(const json::object& greeting) {
  send_line(line_, {.kind = LineMessage::Kind::connected});
  runs_ = false;
  learn(greeting);
  std::vector<std::string> lost = read_lost(greeting);
  if (lost.empty()) return up();
  const bool runs = std::exchange(runs_, false);  // nothing passes before they are there again
  restore_.run(*uplink_.stream(), std::move(lost), [this, runs](const Error* error) {
    if (error) return uplink_.stream()->give_up(Error(*error));
    runs_ = runs;
    up();
  });
}

void Worker::up() {
  if (runs_) {
    serve_sandbox();
    return answer_all(std::exchange(connecting_, {}), nullptr);
  }
  if (fate_.begun()) return fetch_rest(kLastRounds);
  start_up_.send_trees(*uplink_.stream(), [this](const Error* error) { trees_sent(error); });
}

void Worker::trees_sent(const Error* error) {
  trees_there_ = !error;
  answer_all(std::exchange(connecting_, {}), error);
}

void Worker::begin_asked(const std::string& body, Answer answer) {
  if (runs_ && uplink_.stream()) return answer(kDone, nullptr);
  Stream* stream = uplink_.stream();
  if (!stream || !trees_there_ || !beginning_.empty()) {
    const Error error =
        stream ? Error(Code::conflict, "the start of the sandbox is under way") : why_not();
    return answer({}, &error);
  }
  beginning_.push_back(std::move(answer));
  try {
    start_up_.begin(*stream, base::parse_link_layers(body),
                    [this](const Error* error) { begun(error); });
  } catch (const Error& error) {
    begun(&error);
  }
}

void Worker::begun(const Error* error) {
  if (!error) {
    learn(start_up_.prepared());
    runs_ = true;
    fate_.set_begun();
    serve_sandbox();
  }
  answer_all(std::exchange(beginning_, {}), error);
}

void Worker::follow_all() {
  syncs_.attach(*uplink_.stream(), true);
  for (const auto& [tag, journal] : journals_) journal->follow(*uplink_.stream());
}

void Worker::serve_sandbox() {
  uplink_.keep_trying();
  follow_all();
  if (known_.network.empty()) network_.attach(*uplink_.stream());
  if (!changing_.empty() && !start_up_.busy()) send_changed();
  front_.go_on();
  // What happened there while nobody was connected.
  syncs_.request([](const Error*) {});
}

void Worker::on_down(const Error& reason) {
  trees_there_ = false;
  syncs_.detach();
  for (const auto& [tag, journal] : journals_) journal->detach();
  network_.detach();
  farewell_.cancel();
  restore_.cancel();
  start_up_.cancel();
  answer_all(std::exchange(connecting_, {}), &reason);
  answer_all(std::exchange(beginning_, {}), &reason);
  answer_all(std::exchange(changing_, {}), &reason);
  changed_paths_.clear();
  // At its end it is gone on purpose.
  if (reason.code() == Code::not_found && fate_.begun() && !farewell_.under_way())
    lose(reason.message());
}

// ---- files

void Worker::changed_asked(const json::object& body, Answer answer) {
  const json::value* paths = body.if_contains("paths");
  if (!paths || !paths->is_array() || paths->get_array().size() > kMaxPaths)
    throw Error(Code::invalid_argument, "paths must be a list of at most 10000");
  uplink_.use();
  Stream& stream = running_sandbox();
  for (const json::value& path : paths->get_array())
    changed_paths_.push_back(json::value_to<std::string>(path));
  changing_.push_back(std::move(answer));
  if (!start_up_.busy() && !stream.broken()) send_changed();
}

void Worker::send_changed() {
  const std::vector<std::string> paths = std::exchange(changed_paths_, {});
  start_up_.send_paths(*uplink_.stream(), {paths},
                       [this, asked = std::exchange(changing_, {})](const Error* error) {
                         answer_all(asked, error);
                         if (!error && !changing_.empty()) send_changed();
                       });
}

void Worker::sync_asked(Answer answer) {
  running_sandbox();
  syncs_.request([answer = std::move(answer)](const Error* error) { answer(kDone, error); });
}

// ---- network

void Worker::network_given(FrontRequest request, const Answer& answer) {
  if (request.method != "POST" || request.fds.size() != 1)
    throw Error(Code::invalid_argument, "POST it with one descriptor");
  base::Fd kept = request.fds[0].duplicate();
  network_.set_line(std::move(request.fds[0]));
  send_line(line_, {.kind = LineMessage::Kind::network_line, .fd = std::move(kept)});
  answer(kDone, nullptr);
}

// ---- journals

void Worker::keep_journal(JournalFile journal) {
  if (journals_.contains(journal.tag))
    throw Error(Code::already_exists, "this command has been started before: " + journal.tag);
  send_line(line_, {.kind = LineMessage::Kind::keep,
                    .text = journal.tag,
                    .room_bytes = journal.room_bytes,
                    .fd = journal.fd.duplicate()});
  const std::string tag = journal.tag;
  journals_[tag] = std::make_shared<Journal>(loop_, *this, std::move(journal));
  uplink_.use();
}

void Worker::keep_asked(FrontRequest request, const Answer& answer) {
  const json::object object = request.fields();
  const json::value* tag = object.if_contains("tag");
  const json::value* room = object.if_contains("room_bytes");
  if (!tag || !tag->is_string() || !room || !room->is_number() || request.fds.size() != 1)
    throw Error(Code::invalid_argument, "a tag, a room and one descriptor are needed");
  const std::string name(tag->get_string());
  if (!journals_.contains(name))
    keep_journal({name, std::move(request.fds[0]), room->to_number<uint64_t>()});
  if (runs_) command_started(name);
  answer(kDone, nullptr);
}

void Worker::follows_asked(const json::object& body, const Answer& answer) const {
  const json::value* tag = body.if_contains("tag");
  const bool follows = tag && tag->is_string() && journals_.contains(tag->get_string().c_str());
  answer(json::serialize(json::object{{"follows", follows}}), nullptr);
}

void Worker::follow(const std::string& tag, bool expected) {
  const auto found = journals_.find(tag);
  if (found == journals_.end() || !uplink_.stream()) return;
  found->second->follow(*uplink_.stream(), expected);
}

void Worker::drop_journal(const std::string& tag) {
  const auto found = journals_.find(tag);
  if (found == journals_.end()) return;
  found->second->leave();
  journals_.erase(found);
  send_line(line_, {.kind = LineMessage::Kind::drop, .text = tag});
}

void Worker::journal_failed(const std::string& tag, const Error& reason) {
  uplink_.ask_for_sign();  // its sandbox may have ended
  const std::string text = "moorage-link: the journal of " + tag + ": " +
                           base::escape_for_message(reason.message()) + "\n";
  [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text.data(), text.size());
  drop_journal(tag);
}

void Worker::sync_for_end(std::function<void()> done) {
  syncs_.request([this, done = std::move(done)](const Error* error) {
    if (!error) return done();
    if (!uplink_.stream() || uplink_.stream()->broken()) return;  // the journal asks again
    ends_.push_back(done);
    sync_again_.start(kSyncAgain, [this] {
      for (auto& one : std::exchange(ends_, {})) sync_for_end(std::move(one));
    });
  });
}

void Worker::tick() {
  tick_.start(std::chrono::seconds(std::max<uint32_t>(config_.sync_interval_s, 1)),
              [this] { tick(); });
  if (!any_running(journals_) || !runs_ || !uplink_.stream() || syncs_.busy()) return;
  if (syncs_.waiting_packs() < kMaxWaitingPacks) syncs_.request([](const Error*) {});
}

std::string Worker::status() const {
  base::LinkStatus status = known_;
  status.connected = uplink_.stream() != nullptr;
  status.runs = status.connected && runs_;
  status.last_pack = syncs_.last();
  status.restored = restore_.restored() + start_up_.resent();
  status.kept_ms = uplink_.kept_ms();
  if (syncs_.synced_ms() > 0)
    status.behind_ms =
        static_cast<uint64_t>(std::max<int64_t>(1, base::monotonic_ms() - syncs_.synced_ms()));
  if (!status.connected) status.reason = why_not().message();
  return base::link_status_text(status);
}

// ---- the end

void Worker::destroy_asked(const Answer& answer) {
  runs_ = false;
  uplink_.remove([answer](const Error* error) { answer(kDone, error); });
}

void Worker::shutdown_asked(const json::object& body, Answer answer) {
  if (uplink_.asleep()) return wake_for_end(body, std::move(answer));
  Stream& stream = running_sandbox();
  const auto ended = [this, answer = std::move(answer)](const std::string& how,
                                                        const Error* error) {
    answer(how, error);
    if (!error) exit_.start(milliseconds(50), [this] { loop_.stop(); });  // the answer leaves first
  };
  farewell_.run(stream, body, ended);
}

void Worker::wake_for_end(const json::object& body, Answer answer) {
  connecting_.push_back(
      [this, body, answer = std::move(answer)](const std::string&, const Error* failed) {
        if (failed) return answer({}, failed);
        try {
          shutdown_asked(body, answer);
        } catch (const Error& error) {
          answer({}, &error);
        }
      });
  uplink_.use();
}

void Worker::on_sign(const json::object& greeting) {
  if (!runs_ || farewell_.under_way() || says(greeting, "started")) return;
  runs_ = false;
  fetch_rest(kLastRounds);
}

// The sandbox there runs no more. What is there of its journals and files comes first, if anything
// is: a machine that lost them refuses the sync.
void Worker::fetch_rest(unsigned rounds) {
  follow_all();
  syncs_.request([this, rounds](const Error* error) {
    if (!uplink_.stream() || uplink_.stream()->broken()) return;  // again with the next one
    if (error) return lose("the machine does not have the sandbox any more");
    if (rounds > 1 && !journals_.empty()) return fetch_rest(rounds - 1);
    lose("the sandbox ended on the other machine");
  });
}

// The keeper ends with this process, and so does the sandbox here.
void Worker::lose(const std::string& reason) {
  uplink_.stop_trying();
  fate_.set_gone(reason);
  exit_.start(milliseconds(0), [this] { loop_.stop(); });
}

}  // namespace

void run_worker(const WorkerOptions& options) {
  set_up_process();
  const base::LinkConfig config = base::parse_link_config(base::read_file(options.config));
  Packer packer(config);
  Inherited inherited = take_over(options.line);
  const auto sockets = enter_network(std::move(inherited.name_space));
  give_up_rights();
  Worker worker(config, options.line, packer, sockets.get(), std::move(inherited));
  worker.run();
  _exit(0);
}

}  // namespace moorage::link
