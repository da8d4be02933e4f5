#include "workspace/upkeep/disk_guard.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/os/written_bytes.h"
#include "base/size_text.h"
#include "state_db/store.h"
#include "workspace/context/metrics.h"

namespace moorage::workspace {
namespace {

// Limit for one sandbox: processes queried in one check.
constexpr size_t kMostProcesses = 4096;
// Less in a second does not count as writing: the agent's database, a log.
constexpr uint64_t kLeastGrowth = 256 << 10;
// The part reserved for the database: below it, the writer is ended even if free space no longer
// falls, because there is none.
constexpr uint64_t kLastPart = 8;

bool less_than(const base::Space& now, const base::Space& before) {
  return now.free_bytes < before.free_bytes || now.free_inodes < before.free_inodes;
}

uint64_t written_by(const std::vector<pid_t>& processes) {
  uint64_t bytes = 0;
  for (const pid_t process : processes) bytes += base::written_bytes(process);
  return bytes;
}

}  // namespace

void DiskGuard::look() {
  const DiskRoom room = look_at_room(context_.options);
  const RoomLevel level = room.level();
  if (level != level_) tell(level, room);
  if (level == RoomLevel::enough) {
    written_.clear();
    before_.reset();
    return;
  }
  end_one(room);
  before_ = room.space;
}

void DiskGuard::tell(RoomLevel level, const DiskRoom& room) {
  const std::string name(kRoomLevelNames.at(static_cast<size_t>(level)));
  const bool worse = level > level_;
  level_ = level;
  base::log(level == RoomLevel::enough ? base::LogLevel::info : base::LogLevel::warning,
            "store.room", {{"level", name}, {"room", room.text()}});
  if (worse) gc_.request();
  try {
    context_.store.add_event("store.room", {}, name + ": " + room.text());
  } catch (const base::Error& error) {  // the disk is too full even for that; the log has it
    base::log(base::LogLevel::warning, "store.room_not_recorded", {{"error", error.message()}});
  }
}

uint64_t DiskGuard::grown(const std::string& subject, uint64_t written_bytes) {
  seen_[subject] = written_bytes;
  const auto before = written_.find(subject);
  if (before == written_.end()) return 0;
  return written_bytes - std::min(written_bytes, before->second);
}

std::vector<DiskGuard::Writer> DiskGuard::writers() {
  std::vector<Writer> writers;
  for (const auto& running : context_.live.all()) {
    const auto execs = state_db::ExecTable(context_.store).running(running.sandbox);
    uint64_t of_execs = 0;
    for (const auto& exec : execs) {
      uint64_t written = 0;
      try {
        const auto group = running.backend->exec_group(running.name, exec.id.str());
        written = written_by(group->members(kMostProcesses));
      } catch (const base::Error&) {
        continue;  // it is ending
      }
      if (const auto progress = watcher_.progress(exec.id)) written += progress->output_bytes;
      Writer writer{running, exec, grown(exec.id.str(), written)};
      of_execs += writer.grown_bytes;
      writers.push_back(std::move(writer));
    }
    const uint64_t all = grown(running.sandbox.str(),
                               written_by(base::process_tree(running.init.pid, kMostProcesses)));
    // Growth not caused by its commands comes from processes that earlier commands left.
    if (of_execs < kLeastGrowth) writers.push_back({running, std::nullopt, all});
  }
  std::stable_sort(writers.begin(), writers.end(), [](const Writer& one, const Writer& other) {
    return one.grown_bytes > other.grown_bytes;
  });
  written_ = std::exchange(seen_, {});
  return writers;
}

void DiskGuard::end_one(const DiskRoom& room) {
  // At the first level only measure, so that at the second the fastest writer is known.
  const auto all = writers();
  if (room.level() != RoomLevel::short_of || !before_ || all.empty()) return;
  const bool falls = less_than(room.space, *before_);
  const bool nothing_left = room.space.free_bytes < room.min_free_bytes / kLastPart ||
                            room.space.free_inodes < room.min_free_inodes / kLastPart;
  const Writer& most = all.front();
  if (most.grown_bytes < kLeastGrowth || !(falls || nothing_left)) return;
  end(most, "the disk of the store is nearly full (" + room.text() + ") and it wrote " +
                base::size_text(most.grown_bytes) + " since the last check");
}

void DiskGuard::end(const Writer& writer, const std::string& reason) {
  const auto workspace = writer.running.workspace;
  state_db::Subject subject;
  subject.workspace = workspace;
  subject.sandbox = writer.running.sandbox;
  if (writer.exec) {
    subject.exec = writer.exec->id;
    if (!watcher_.end_because(writer.exec->id, {{}, state_db::ExecCategory::disk_full, reason}))
      return;
    context_.metrics.ended_for_space.add();
  } else {
    try {
      start_stop_.stop_because(workspace, reason);
    } catch (const base::Error& error) {  // a verb is running on it: the next check retries
      base::log(base::LogLevel::warning, "store.writer_not_ended",
                {{"ws", workspace}, {"error", error.message()}});
      return;
    }
    context_.metrics.stopped_for_space.add();
  }
  base::log(
      base::LogLevel::warning, "store.writer_ended",
      {{"ws", workspace}, {"ex", writer.exec ? writer.exec->id.str() : "-"}, {"reason", reason}});
  try {
    context_.store.add_event("store.writer_ended", subject, reason);
  } catch (const base::Error& error) {
    base::log(base::LogLevel::warning, "store.event_not_recorded", {{"error", error.message()}});
  }
}

}  // namespace moorage::workspace
