#include "workspace/exec/watcher.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/os/files.h"
#include "state_db/store.h"
#include "workspace/exec/evidence.h"
#include "workspace/exec/watched_exec.h"

namespace moorage::workspace {
namespace {

using base::check;
using state_db::ExecCategory;

constexpr size_t kPoolThreads = 4;
constexpr size_t kEndThreads = 8;
constexpr size_t kPoolQueue = 100'000;
constexpr std::chrono::milliseconds kBusyPause{1'000};
// The warden ends a hook at its deadline and reports it; we wait this much longer for its report.
constexpr std::chrono::milliseconds kReportPatience{5'000};
// One journal must not hold up the others, so a turn reads at most this much of it.
constexpr uint64_t kMaxTurnBytes = 8 << 20;

// The earlier of two epoll_wait timeouts; -1 means never.
int earlier(int one, int other) {
  if (one < 0 || other < 0) return std::max(one, other);
  return std::min(one, other);
}

// The subject of an epoll event: one of these, or the number of a sandbox whose init ended.
constexpr uint64_t kWoken = UINT64_MAX;
constexpr uint64_t kJournals = UINT64_MAX - 1;

void add_to_epoll(int epoll, int fd, uint64_t subject) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = subject;
  base::check_allowance(epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event), "watch a descriptor",
                        "fs.epoll.max_user_watches");
}

// Other processes may use up root's inotify allowance on the host; then we poll the journals.
constexpr int kPoll_ms = 20;

void warn_of_polling(const char* setting) {
  base::log(base::LogLevel::warning, "exec.polled",
            {{"why", "root has reached the kernel's limit on inotify"}, {"raise", setting}});
}

}  // namespace

ExecWatcher::ExecWatcher(Context& context, IncomingPacks& incoming)
    : context_(context),
      incoming_(incoming),
      epoll_(check(epoll_create1(EPOLL_CLOEXEC), "create an epoll set")),
      wake_(check(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "create an eventfd")),
      pool_(kPoolThreads, kPoolQueue),
      ends_(kEndThreads, kPoolQueue) {
  add_to_epoll(epoll_.get(), wake_.get(), kWoken);
  thread_ = std::thread([this] { run(); });
}

ExecWatcher::~ExecWatcher() { stop(); }

void ExecWatcher::stop() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
  incoming_.stop();
}

void ExecWatcher::wake() {
  const uint64_t one = 1;
  // EAGAIN: the counter is full, so the thread is awake already.
  if (write(wake_.get(), &one, sizeof one) < 0 && errno != EAGAIN) base::throw_errno("wake up");
}

void ExecWatcher::watch_exec(const state_db::ExecRow& exec, bool sync, const Refusals& before) {
  const std::string path = journal_path(context_.options, exec.request.workspace, exec.id);
  auto watched = std::make_shared<Watched>(exec, base::open_file(path, O_RDONLY), sync, before,
                                           context_.options.output_limit_bytes);
  watched->set_began(context_.store.clock());
  if (!exec.request.hook.empty() && exec.request.timeout_ms > 0) {
    watched->give_up_at = std::chrono::steady_clock::now() + context_.options.stop_grace +
                          std::chrono::milliseconds(exec.request.timeout_ms) + kReportPatience;
  }
  const std::lock_guard lock(mutex_);
  watched->watch = watch_journal(path);
  if (watched->watch >= 0) by_watch_[watched->watch] = exec.id;
  execs_[exec.id] = std::move(watched);
  more_.insert(exec.id);  // for bytes written before the watch existed
  wake();
}

// Returns -1 if the journal must be polled.
int ExecWatcher::watch_journal(const std::string& path) {
  if (!inotify_) {
    inotify_.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (!inotify_ && errno == EMFILE) {
      warn_of_polling("fs.inotify.max_user_instances");
      return -1;
    }
    check(inotify_.get(), "create an inotify descriptor");
    add_to_epoll(epoll_.get(), inotify_.get(), kJournals);
  }
  const int watch = inotify_add_watch(inotify_.get(), path.c_str(), IN_MODIFY);
  if (watch >= 0) return watch;
  if (errno != ENOSPC) base::throw_errno("watch " + path);
  warn_of_polling("fs.inotify.max_user_watches");
  return -1;
}

void ExecWatcher::watch_sandbox(const LiveSandbox& running) {
  LiveSandbox init = running;
  init.mounted.reset();  // never the last reference: `running` holds the mounts
  base::Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, running.init.pid, 0)));
  if (!pidfd && errno != ESRCH) base::throw_errno("watch a sandbox");
  // The process may have died, and its pid been reused, before the pidfd was made.
  if (!pidfd || !base::process_alive(running.init)) {
    return report_death(init);
  }
  const std::lock_guard lock(mutex_);
  add_to_epoll(epoll_.get(), pidfd.get(), static_cast<uint64_t>(running.sandbox.value));
  inits_[running.sandbox] = {std::move(pidfd), std::move(init)};
}

void ExecWatcher::forget_sandbox(base::SandboxId sandbox) {
  const std::lock_guard lock(mutex_);
  inits_.erase(sandbox);
}

void ExecWatcher::settle(base::SandboxId sandbox, const std::string& why_interrupted) {
  std::vector<WatchedPtr> affected;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, watched] : execs_) {
      if (watched->row.request.sandbox == sandbox) affected.push_back(watched);
    }
  }
  for (const auto& watched : affected) {
    read_to_end(watched,
                is_stopping(context_, sandbox) ? ExecCategory::stopped : ExecCategory::lost,
                why_interrupted);
  }
}

void ExecWatcher::settle_exec(const state_db::ExecRow& exec, ExecCategory category,
                              const std::string& why_interrupted) {
  WatchedPtr watched;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = execs_.find(exec.id); found != execs_.end()) watched = found->second;
  }
  if (!watched) {
    const std::string path = journal_path(context_.options, exec.request.workspace, exec.id);
    // No journal: the daemon died after writing the record. /dev/null reads as an empty journal.
    const bool began = base::path_exists(path);
    watched = std::make_shared<Watched>(exec, base::open_file(began ? path : "/dev/null", O_RDONLY),
                                        false, Refusals{}, context_.options.output_limit_bytes);
    watched->set_began(context_.store.clock());
    // The journal may hold its end, and the row does not say whether a sync was requested.
    if (began) base::sync_file_system(context_.options.store);
  }
  read_to_end(watched, category, why_interrupted);
}

void ExecWatcher::read_to_end(const WatchedPtr& watched, ExecCategory category,
                              const std::string& why_interrupted) {
  while (read_journal(watched, Ends::here)) {
  }
  interrupt(watched, category, why_interrupted);
  watched->wait_handled();
}

bool ExecWatcher::end_because(base::ExecId exec, const ExecVerdict& verdict) {
  WatchedPtr watched;
  {
    const std::lock_guard lock(mutex_);
    const auto found = execs_.find(exec);
    if (found == execs_.end() || found->second->verdict) return false;
    watched = found->second;
    watched->verdict = verdict;
  }
  kill_group(*watched);
  return true;
}

void ExecWatcher::end_all(base::SandboxId sandbox, const ExecVerdict& verdict,
                          std::optional<std::chrono::milliseconds> grace) {
  const std::lock_guard lock(mutex_);
  for (const auto& [id, watched] : execs_) {
    if (watched->row.request.sandbox != sandbox || watched->verdict) continue;
    if (!watched->row.request.hook.empty()) continue;
    watched->verdict = verdict;
    if (grace) watched->kill_at = std::chrono::steady_clock::now() + *grace;
  }
  wake();
}

ExecWatcher::RunningTime ExecWatcher::running_time(base::WorkspaceId workspace) {
  const int64_t now = context_.store.clock().boot_ms();
  RunningTime time;
  const std::lock_guard lock(mutex_);
  for (const auto& [id, watched] : execs_) {
    const auto& request = watched->row.request;
    if (request.workspace != workspace || !request.hook.empty()) continue;
    ++time.execs;
    time.ms += std::max<int64_t>(0, now - watched->began_boot_ms);
  }
  return time;
}

void ExecWatcher::add_unconfirmed(const state_db::ExecRow& exec, const std::string& why) {
  const std::lock_guard lock(mutex_);
  unconfirmed_.push_back({exec, why});
}

std::vector<ExecWatcher::Unconfirmed> ExecWatcher::take_unconfirmed() {
  const std::lock_guard lock(mutex_);
  return std::exchange(unconfirmed_, {});
}

void ExecWatcher::kill_after(base::ExecId exec, std::chrono::milliseconds grace) {
  const std::lock_guard lock(mutex_);
  const auto found = execs_.find(exec);
  if (found == execs_.end()) return;
  found->second->kill_at = std::chrono::steady_clock::now() + grace;
  wake();
}

std::optional<ExecWatcher::Progress> ExecWatcher::progress(base::ExecId exec) {
  const std::lock_guard lock(mutex_);
  const auto found = execs_.find(exec);
  if (found == execs_.end()) return std::nullopt;
  return Progress{found->second->output_bytes, found->second->last_output_ms};
}

void ExecWatcher::run() {
  for (;;) {
    int timeout_ms = earlier(poll_unwatched(), earlier(kill_overdue(), retry_overdue()));
    std::vector<WatchedPtr> turn;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (const auto id : more_) {
        if (const auto found = execs_.find(id); found != execs_.end())
          turn.push_back(found->second);
      }
      more_.clear();
    }
    for (const auto& watched : turn) {
      if (!read_journal(watched, Ends::on_pool)) continue;
      const std::lock_guard lock(mutex_);
      more_.insert(watched->row.id);
      timeout_ms = 0;
    }
    std::array<epoll_event, 64> events{};
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), timeout_ms);
    for (int i = 0; i < count; ++i) {
      const uint64_t subject = events.at(i).data.u64;
      if (subject == kWoken) {
        uint64_t counter = 0;
        if (read(wake_.get(), &counter, sizeof counter) < 0 && errno != EAGAIN)
          base::throw_errno("read an eventfd");
      } else if (subject == kJournals) {
        handle_inotify();
      } else {
        handle_death(base::SandboxId{static_cast<int64_t>(subject)});
      }
    }
  }
}

void ExecWatcher::handle_inotify() {
  alignas(inotify_event) std::array<char, 64 << 10> buffer{};
  for (;;) {
    const ssize_t size = read(inotify_.get(), buffer.data(), buffer.size());
    if (size <= 0) return;
    const std::lock_guard lock(mutex_);
    for (ssize_t at = 0; at < size;) {
      const auto* event = reinterpret_cast<const inotify_event*>(buffer.data() + at);
      at += static_cast<ssize_t>(sizeof(inotify_event) + event->len);
      if ((event->mask & IN_Q_OVERFLOW) != 0) {  // events were lost: read every journal
        for (const auto& [id, watched] : execs_) more_.insert(id);
      } else if (const auto found = by_watch_.find(event->wd); found != by_watch_.end()) {
        more_.insert(found->second);
      }
    }
  }
}

int ExecWatcher::poll_unwatched() {
  const std::lock_guard lock(mutex_);
  if (by_watch_.size() == execs_.size()) return -1;
  for (const auto& [id, watched] : execs_) {
    if (watched->watch < 0) more_.insert(id);
  }
  return kPoll_ms;
}

void ExecWatcher::handle_death(base::SandboxId sandbox) {
  LiveSandbox dead;
  {
    const std::lock_guard lock(mutex_);
    const auto found = inits_.find(sandbox);
    if (found == inits_.end()) return;  // forgotten during this turn
    dead = found->second.second;
    inits_.erase(found);
  }
  report_death(dead);
}

void ExecWatcher::report_death(const LiveSandbox& dead) {
  const base::Share share{.user = dead.owner, .subject = dead.workspace.str()};
  pool_.submit(share, [this, dead, share] {
    bool heard = true;
    listeners_.each([&](ExecListener& listener) {
      heard = listener.sandbox_died(dead.workspace, dead.sandbox) && heard;
    });
    if (!heard) retry_in(kBusyPause, share, [this, dead] { report_death(dead); });
  });
}

void ExecWatcher::retry_in(std::chrono::milliseconds pause, const base::Share& share,
                           std::function<void()> work) {
  const std::lock_guard lock(mutex_);
  retries_.push_back({std::chrono::steady_clock::now() + pause, share, std::move(work)});
  wake();
}

int ExecWatcher::retry_overdue() {
  const auto now = std::chrono::steady_clock::now();
  int next_ms = -1;
  std::vector<Retry> due;
  {
    const std::lock_guard lock(mutex_);
    for (auto& retry : std::exchange(retries_, {})) {
      if (retry.at > now) next_ms = earlier(next_ms, whole_ms(retry.at - now));
      (retry.at > now ? retries_ : due).push_back(std::move(retry));
    }
  }
  for (auto& retry : due) pool_.submit(retry.share, std::move(retry.work));
  return next_ms;
}

int ExecWatcher::kill_overdue() {
  std::vector<WatchedPtr> overdue;
  std::vector<WatchedPtr> silent;
  const auto now = std::chrono::steady_clock::now();
  std::optional<std::chrono::steady_clock::time_point> next;
  const auto is_due = [&](auto& at) {
    if (!at) return false;
    const bool due = *at <= now;
    if (!due && (!next || *at < *next)) next = at;
    if (due) at.reset();
    return due;
  };
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, watched] : execs_) {
      const bool gives_up = is_due(watched->give_up_at);
      if (gives_up) silent.push_back(watched);
      if (is_due(watched->kill_at) || gives_up) overdue.push_back(watched);
    }
  }
  for (const auto& watched : overdue) kill_group(*watched);
  for (const auto& watched : silent) {
    pool_.submit(watched->share(), [this, watched] {
      interrupt(watched, ExecCategory::lost, "its sandbox did not report its end in time");
    });
  }
  if (!next) return -1;
  return whole_ms(*next - now);
}

void ExecWatcher::kill_group(const Watched& watched) {
  const auto running = context_.live.without_mounts(watched.row.request.sandbox);
  if (!running) return;
  try {
    running->backend->exec_group(running->name, watched.row.id.str())->kill();
  } catch (const base::Error& error) {
    base::log(base::LogLevel::error, "exec.kill_failed",
              {{"ex", watched.row.id}, {"error", error.message()}});
  }
}

bool ExecWatcher::read_journal(const WatchedPtr& watched, Ends ends) {
  bool grew = false;
  bool more = false;
  std::optional<base::Frame> last;
  const uint64_t limit_bytes = journal_limit(watched->row.request.workspace);
  {
    const std::lock_guard lock(watched->mutex);
    if (watched->over) return false;
    base::JournalReader& reader = watched->reader;
    const uint64_t begin = reader.file_position();
    for (uint64_t at = begin; auto frame = reader.next(); at = reader.file_position()) {
      grew = true;
      watched->middle.passed(*frame, at, reader.file_position());
      watched->output_bytes = reader.output_offset();
      if (base::is_output(frame->header.kind)) {
        watched->last_output_ms = frame->header.wall_ns / 1'000'000;
      } else if (frame->header.kind == base::FrameKind::end) {
        watched->over = true;
        last = std::move(frame);
        break;
      }
      if (reader.file_position() - begin > kMaxTurnBytes) {
        more = true;
        break;
      }
    }
    if (!last) cut_middle(watched, limit_bytes);
    if (last && watched->cutting) watched->held_end.swap(last);
  }
  if (last && ends == Ends::on_pool) {
    try {
      ends_.submit(watched->share(), [this, watched, frame = *last] { end(watched, frame); });
    } catch (const base::Error&) {  // cannot start even one thread
      end(watched, *last);
    }
  } else if (last) {
    end(watched, *last);
  } else if (grew) {
    wake_readers(watched->row.id);
  }
  return more;
}

void ExecWatcher::wake_readers(base::ExecId exec) {
  const std::lock_guard lock(subscribers_mutex_);
  const auto found = subscribers_.find(exec);
  if (found == subscribers_.end()) return;
  for (const auto& [number, callback] : found->second) callback();
}

ExecWatcher::Subscription ExecWatcher::subscribe(base::ExecId exec, Callback callback) {
  const std::lock_guard lock(subscribers_mutex_);
  const uint64_t number = next_subscription_++;
  subscribers_[exec][number] = std::move(callback);
  return {this, [exec, number](ExecWatcher* watcher) { watcher->unsubscribe(exec, number); }};
}

void ExecWatcher::unsubscribe(base::ExecId exec, uint64_t number) {
  const std::lock_guard lock(subscribers_mutex_);
  const auto found = subscribers_.find(exec);
  if (found == subscribers_.end()) return;
  found->second.erase(number);
  if (found->second.empty()) subscribers_.erase(found);
}

}  // namespace moorage::workspace
