#include "workspace/quota_watch.h"

#include <algorithm>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "base/size_text.h"
#include "base/written_bytes.h"
#include "state_db/store.h"
#include "workspace/metrics.h"

namespace moorage::workspace {
namespace {

using base::Code;
using base::Error;
using std::chrono::milliseconds;

constexpr size_t kMostProcesses = 4096;
constexpr base::UsageLimits kWalk{.time = milliseconds(10'000)};
// Of the time, one part of so many for the walks of one workspace.
constexpr int kShare = 10;
// What an agent takes with `rm` running: a shell's history, a moved directory's index.
constexpr uint64_t kSlackBytes = 256 << 10;
constexpr uint64_t kSlackFiles = 64;

bool is_over(const QuotaUse& use, const QuotaLimit& limit) {
  return (limit.bytes > 0 && use.bytes > limit.bytes) ||
         (limit.files > 0 && use.files.value_or(0) > limit.files);
}

bool has_grown(const QuotaUse& now, const QuotaUse& before) {
  return now.bytes > before.bytes + kSlackBytes ||
         now.files.value_or(0) > before.files.value_or(0) + kSlackFiles;
}

// How much of the limit is taken, 1 is all.
double fullness(const QuotaUse& use, const QuotaLimit& limit) {
  const auto part = [](uint64_t used, uint64_t of) {
    return of == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(of);
  };
  return std::max(part(use.bytes, limit.bytes), part(use.files.value_or(0), limit.files));
}

milliseconds pause_at(double fullness) {
  if (fullness > 0.8) return milliseconds(1'000);
  return milliseconds(fullness > 0.5 ? 3'000 : 10'000);
}

std::string text_of(const QuotaUse& use, const QuotaLimit& limit) {
  std::string text = base::size_text(use.bytes);
  if (limit.bytes > 0) text += " of " + base::size_text(limit.bytes);
  if (use.files) text += ", " + std::to_string(*use.files);
  if (use.files && limit.files > 0) text += " of " + std::to_string(limit.files);
  return text + (use.files ? " files" : "");
}

}  // namespace

QuotaLimit limit_of(const state_db::WorkspaceRow& row) {
  return {row.policy.limits.disk_bytes, row.policy.limits.disk_files};
}

std::optional<QuotaUse> QuotaWatch::measure(const state_db::WorkspaceRow& row) {
  const std::string path = context_.storage.layer_path(row.layer);
  const QuotaLimit limit = limit_of(row);
  auto& quota = context_.storage.quota();
  auto use = quota.use(row.layer, path);
  // What the kernel refuses is not walked for.
  const bool walk = !use || (limit.files > 0 && !quota.refuses_files());
  if (!walk) return use;
  try {
    const auto walked = base::tree_usage(path, kWalk);
    if (!use) use = QuotaUse{walked.bytes, {}};
    use->files = walked.inodes;
  } catch (const Error& error) {  // it is moved about under the walk, or goes away
    base::log(base::LogLevel::debug, "workspace.not_measured",
              {{"ws", row.id}, {"error", error.message()}});
  }
  return use;
}

void QuotaWatch::look() {
  std::map<base::WorkspaceId, bool> live;
  for (const auto& running : active_.all()) {
    live[running->workspace] = true;
    try {
      look_at(*running);
    } catch (const Error& error) {
      base::log(base::LogLevel::warning, "workspace.quota",
                {{"ws", running->workspace}, {"error", error.message()}});
    }
  }
  std::map<base::WorkspaceId, QuotaUse> rested;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(seen_, [&](const auto& seen) {
      return !live.contains(seen.first) && !seen.second.uploaded && Clock::now() > seen.second.next;
    });
    for (const auto& [id, seen] : seen_) {
      const bool rests = !live.contains(id) && !active_.mounted(id);
      if (rests && seen.uploaded && Clock::now() > seen.next) rested[id] = seen.use;
    }
  }
  for (const auto& [id, use] : rested) measure_rested(id, use);
}

// What was uploaded to one at rest counts until it is measured, and that is in its row then.
void QuotaWatch::measure_rested(base::WorkspaceId id, const QuotaUse& counted) {
  const auto row = state_db::Workspaces(context_.store).find(id);
  const bool there = row && row->state == state_db::WorkspaceState::ready && row->layer;
  const auto began = Clock::now();
  const auto measured = there ? measure(*row) : QuotaUse{};
  if (there && measured) {
    state_db::WorkspaceFacts facts;
    facts.disk_bytes = measured->bytes;
    facts.disk_files = measured->files;
    state_db::Workspaces(context_.store).set_facts(id, facts);
  }
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  const std::lock_guard lock(mutex_);
  const auto found = seen_.find(id);
  if (found == seen_.end()) return;
  Seen& seen = found->second;
  seen.next = Clock::now() + std::max(milliseconds(1'000), took * kShare);
  const bool same = seen.use.bytes == counted.bytes && seen.use.files == counted.files;
  if (!same || !measured) return;  // more came meanwhile: the next look
  seen.use = *measured;
  seen.uploaded = false;
}

void QuotaWatch::look_at(const Running& running) {
  const auto row = state_db::Workspaces(context_.store).find(running.workspace);
  if (!row || !row->layer || !limit_of(*row).any()) return;
  Seen seen;
  bool is_new = true;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = seen_.find(row->id); found != seen_.end()) {
      seen = found->second;
      is_new = false;
    }
  }
  const auto began = Clock::now();
  if (began < seen.next) return;
  uint64_t written = 0;
  for (const pid_t process : base::process_tree(running.init.pid, kMostProcesses))
    written += base::written_bytes(process);
  // Empty files and fallocate write no page: without a word of that it is still looked at at times.
  const bool quiet = !is_new && written == seen.written_bytes && !seen.over;
  if (quiet && began < seen.next + milliseconds(10'000)) return;
  const auto use = measure(*row);
  if (!use) return;
  seen.use = *use;
  seen.written_bytes = written;
  const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - began);
  seen.next = Clock::now() + std::max(pause_at(fullness(*use, limit_of(*row))), took * kShare);
  judge(*row, running, seen);
  const std::lock_guard lock(mutex_);
  seen_[row->id] = seen;
}

void QuotaWatch::judge(const state_db::WorkspaceRow& row, const Running& running, Seen& seen) {
  const QuotaLimit limit = limit_of(row);
  if (!is_over(seen.use, limit)) {
    seen.over.reset();
    return;
  }
  const bool grown = !seen.over || has_grown(seen.use, *seen.over);
  if (!seen.over || seen.use.bytes < seen.over->bytes) seen.over = seen.use;
  if (!grown) return;
  seen.over = seen.use;
  const std::string reason = row.name + " is over its disk limit (" + text_of(seen.use, limit) +
                             "): remove files, or raise it: moorage set " + row.name +
                             " --disk SIZE --disk-files N";
  const auto execs = state_db::Execs(context_.store).running(running.sandbox);
  bool ended = false;
  for (const auto& exec : execs) {
    if (!watcher_.end_because(exec.id, {{}, state_db::ExecCategory::disk_quota, reason})) continue;
    ended = true;
    context_.metrics.ended_for_quota.add();
  }
  if (execs.empty()) stop_(row.id, reason);
  if (!ended && !execs.empty()) return;  // they are on their way out
  context_.store.add_event("workspace.disk_quota",
                           {.workspace = row.id, .sandbox = running.sandbox}, reason);
}

void QuotaWatch::require_room(const state_db::WorkspaceRow& row, uint64_t bytes) {
  const QuotaLimit limit = limit_of(row);
  if (!limit.any()) return;
  const std::lock_guard lock(mutex_);
  const auto [found, is_new] = seen_.try_emplace(row.id);
  Seen& seen = found->second;
  if (is_new) seen.use = {row.disk_bytes.value_or(0), row.disk_files};
  const QuotaUse wanted{seen.use.bytes + bytes, seen.use.files.value_or(0) + 1};
  if (!is_over(wanted, limit)) {
    seen.use.bytes = wanted.bytes;
    if (bytes == 0) seen.use.files = wanted.files;  // asked once a file, before its bytes
    seen.uploaded = true;
    return;
  }
  throw Error(Code::resource_exhausted,
              row.name + " has reached its disk limit (" + text_of(seen.use, limit) +
                  "): no file is written",
              "remove files in it, or raise the limit: moorage set " + row.name +
                  " --disk SIZE --disk-files N");
}

}  // namespace moorage::workspace
