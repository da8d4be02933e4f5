// Records an exec's end in its row (watcher.h): gathers what is known, does the requested sync, and
// retries the write while the database has no room for it. decide_end.h decides how it ended.
#include <sys/inotify.h>

#include <algorithm>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "state_db/reads.h"
#include "state_db/store.h"
#include "workspace/context/metrics.h"
#include "workspace/exec/decide_end.h"
#include "workspace/exec/evidence.h"
#include "workspace/exec/watched_exec.h"

namespace moorage::workspace {
namespace {

using state_db::ExecState;

MOORAGE_CRASH_POINT(before_outcome, "exec.before_outcome");
MOORAGE_CRASH_POINT(after_outcome, "exec.after_outcome");

// Pause between attempts to write outcomes that the database refused.
constexpr std::chrono::milliseconds kWritePause{500};

// If the judge fails, record the end without a verdict rather than blame the command.
template <typename Answer>
Answer ask_listeners(ExecListeners& listeners, const state_db::ExecRow& exec,
                     Answer (ExecListener::*question)(const state_db::ExecRow&)) {
  Answer answer{};
  try {
    listeners.each([&](ExecListener& listener) {
      if (!answer) answer = (listener.*question)(exec);
    });
  } catch (const base::Error& error) {
    base::log(base::LogLevel::warning, "exec.not_judged",
              {{"ex", exec.id}, {"error", error.message()}});
  }
  return answer;
}

std::optional<std::string> sync_error(const std::string& store) {
  try {
    base::sync_file_system(store);
  } catch (const base::Error& error) {
    return error.message();
  }
  return std::nullopt;
}

}  // namespace

// Its link writes the `end` after the pack with its last files, so the packs that are here now
// have them.
void ExecWatcher::end(const WatchedPtr& watched, const base::Frame& frame) {
  const auto running = context_.live.without_mounts(watched->row.request.sandbox);
  if (!running || !running->remote) return end_here(watched, frame);
  incoming_.when_applied(*running, [this, watched, frame](const base::Error* refused) {
    refused ? distrust(watched, refused->message()) : end_here(watched, frame);
  });
}

// The end comes from a machine whose files were refused.
void ExecWatcher::distrust(const WatchedPtr& watched, const std::string& why) {
  End lost;
  lost.record.state = ExecState::interrupted;
  lost.record.category = state_db::ExecCategory::lost;
  lost.record.error = why;
  lost.record.output_bytes = watched->output_bytes;
  lost.record.omitted_bytes = watched->omitted_bytes();
  record(watched, std::move(lost));
  watched->set_handled();
}

void ExecWatcher::end_here(const WatchedPtr& watched, const base::Frame& frame) {
  const state_db::GroupedReads reads(context_.store);
  End end{parse_exec_end(frame.payload), {}};
  // The daemon may have been down when the command ended. Clamp the warden's time: someone may have
  // set the clock meanwhile.
  const int64_t started_ms = watched->row.started_wall_ms;
  end.record.ended_wall_ms = std::clamp(frame.header.wall_ns / 1'000'000, started_ms,
                                        std::max(started_ms, context_.store.clock().wall_ms()));
  end.record.output_bytes = watched->output_bytes;
  end.record.omitted_bytes = std::max(end.record.omitted_bytes, watched->omitted_bytes());
  // Before the evidence is gathered, which removes the command's group.
  auto refused = ask_listeners(listeners_, watched->row, &ExecListener::refused_host);
  end.evidence = gather_evidence(context_, watched->row, watched->before, !succeeded(end.record));
  end.evidence.refused_host = std::move(refused);
  const bool asks = ask_listeners(listeners_, watched->row, &ExecListener::suspects_disk);
  if (!watched->sync && !asks) {
    record(watched, std::move(end));
    return watched->set_handled();
  }
  pool_.submit(watched->share(), [this, watched, end = std::move(end), asks]() mutable {
    if (asks)
      end.evidence.over_disk_limit =
          ask_listeners(listeners_, watched->row, &ExecListener::judge_disk);
    if (watched->sync) end.evidence.sync_error = sync_error(context_.options.store);
    record(watched, std::move(end));
  });
  watched->set_handled();
}

void ExecWatcher::interrupt(const WatchedPtr& watched, state_db::ExecCategory category,
                            const std::string& why) {
  {
    const std::lock_guard lock(watched->mutex);
    if (watched->over) return;
    watched->over = true;
  }
  state_db::ExecOutcome lost{.state = ExecState::interrupted, .category = category, .error = why};
  lost.output_bytes = watched->output_bytes;
  lost.omitted_bytes = watched->omitted_bytes();
  record(watched, {std::move(lost), {}});
  watched->set_handled();
}

void ExecWatcher::record(const WatchedPtr& watched, End end) {
  const auto id = watched->row.id;
  state_db::ExecTable execs(context_.store);
  state_db::ExecOutcome outcome;
  before_outcome.pass();
  try {
    if (end.record.ended_wall_ms == 0) end.record.ended_wall_ms = context_.store.clock().wall_ms();
    if (end.record.ran_ms == 0)
      end.record.ran_ms = watched->ran_ms(context_.store.clock(), end.record.ended_wall_ms);
    const auto verdict = verdict_on(*watched);
    context_.store.transaction([&] {
      outcome = decide_end(end.record, end.evidence, verdict, execs.get(id));
      execs.finish(id, outcome);
    });
  } catch (const base::Error& error) {
    return keep_unwritten(watched, std::move(end), error);
  }
  after_outcome.pass();
  context_.metrics.count_end(watched->row, outcome);
  base::log(base::LogLevel::info, "exec.ended",
            {{"ws", watched->row.request.workspace},
             {"sb", watched->row.request.sandbox},
             {"ex", id},
             {"state", state_db::state_name(outcome.state)},
             {"code", outcome.exit_code.value_or(-1)},
             {"category", outcome.category ? state_db::category_name(*outcome.category) : ""}});
  unwatch(*watched);
  wake_readers(id);
  pool_.submit(watched->share(), [this, watched] {
    listeners_.each([&](ExecListener& listener) { listener.exec_ended(watched->row); });
  });
}

std::optional<ExecVerdict> ExecWatcher::verdict_on(const Watched& watched) {
  const std::lock_guard lock(mutex_);
  return watched.verdict;
}

void ExecWatcher::unwatch(const Watched& watched) {
  const std::lock_guard lock(mutex_);
  if (watched.watch >= 0) {
    inotify_rm_watch(inotify_.get(), watched.watch);
    by_watch_.erase(watched.watch);
  }
  execs_.erase(watched.row.id);
  more_.erase(watched.row.id);
}

// Retries on a full disk until there is room. If the daemon dies first, the next one reads the end
// from the journal, or records the exec as interrupted.
void ExecWatcher::keep_unwritten(const WatchedPtr& watched, End end, const base::Error& error) {
  const bool is_first = !watched->told_unwritten.exchange(true);
  if (is_first) {
    base::log(base::LogLevel::error, "exec.outcome_not_written",
              {{"ex", watched->row.id}, {"error", error.message()}});
  }
  if (error.code() != base::Code::resource_exhausted && error.code() != base::Code::unavailable)
    return;
  // The first retry is immediate: a reserve was freed.
  retry_in(is_first ? std::chrono::milliseconds(0) : kWritePause, watched->share(),
           [this, watched, end = std::move(end)] { record(watched, end); });
}

}  // namespace moorage::workspace
