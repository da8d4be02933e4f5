#include "workspace/archive/import_check.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "base/limit_ranges.h"
#include "base/size_text.h"
#include "workspace/access/policy.h"
#include "workspace/context/checks.h"

namespace moorage::workspace {
namespace {

constexpr size_t kReadBytes = 256 << 10;
constexpr size_t kFlushBytes = 64 << 10;

struct Pair {
  int64_t old = 0;
  int64_t now = 0;
};

// The depth that releases before the merging of snapshots could mount. A start merges layers deeper
// than a mount allows today (Flattening::require_shallow).
constexpr size_t kMaxLayers = 60;
constexpr size_t kMaxRepositoryBytes = 4096;  // limits its address, and its name

void check_repository(const state_db::RepositoryRow& row) {
  for (const std::string* text : {&row.url, &row.fetch_url, &row.name}) {
    if (text->size() > kMaxRepositoryBytes || has_control(*text))
      throw Error(Code::invalid_argument, "the archive has an invalid repository address or name");
  }
}

}  // namespace

void ExecIds::add(base::ExecId old, base::ExecId now) {
  const Pair pair{old.value, now.value};
  added_.append(reinterpret_cast<const char*>(&pair), sizeof pair);
  if (added_.size() >= kFlushBytes) flush();
}

void ExecIds::flush() {
  if (added_.empty()) return;
  base::write_at(file_.get(), added_, count_ * sizeof(Pair));
  count_ += added_.size() / sizeof(Pair);
  added_.clear();
}

std::optional<base::ExecId> ExecIds::find(base::ExecId old) {
  flush();
  uint64_t begin = 0;
  for (uint64_t end = count_; begin < end;) {
    const uint64_t middle = begin + (end - begin) / 2;
    const std::string bytes = base::read_at(file_.get(), sizeof(Pair), middle * sizeof(Pair));
    if (bytes.size() != sizeof(Pair))
      throw Error(Code::io, "the temporary list of command ids is truncated");
    Pair pair;
    std::memcpy(&pair, bytes.data(), sizeof pair);
    if (pair.old == old.value) return base::ExecId{pair.now};
    (pair.old < old.value ? begin : end) = pair.old < old.value ? middle + 1 : middle;
  }
  return std::nullopt;
}

const std::string& ImportCheck::wanted_name() const {
  return name_.empty() ? manifest_.workspace.name : name_;
}

void ImportCheck::manifest(const Manifest& manifest) {
  manifest_ = manifest;
  const auto& row = manifest_.workspace;
  check_workspace_name(wanted_name());
  check_branch_name(row.branch);
  check_labels(row.labels);
  check_repository(manifest.repository);
  // A host of an earlier release accepted more.
  auto& limits = manifest_.workspace.policy.limits;
  limits.memory_bytes = std::min(limits.memory_bytes, base::kMostMemoryBytes);
  limits.pids = std::min(limits.pids, base::kMostPids);
  limits.disk_bytes = std::min(limits.disk_bytes, base::kMostDiskBytes);
  limits.disk_files = std::min(limits.disk_files, base::kMostDiskFiles);
  PolicyChange policy;
  policy.to = row.policy;
  state_db::each_policy_field([&](const char* field, const auto&) { policy.named.insert(field); },
                              policy.to);
  check_policy(policy);
  check_layers();
  for (const auto& snapshot : manifest.snapshots) check_snapshot(snapshot);
}

void ImportCheck::refs(const std::string& text) {
  objects_ = ref_objects(text);
  objects_.push_back(manifest_.workspace.base_commit);
  objects_.push_back(state_db::began_at(manifest_.workspace));
  objects_.push_back(state_db::on_disk(manifest_.workspace));
}

void ImportCheck::exec(const state_db::ExecRow& row) {
  check_exec(row);
  ids_.add(row.id, {});
}

void ImportCheck::journal(base::ExecId old, packs::ArchiveReader&) { check_journal(old); }

void ImportCheck::check_exec(const state_db::ExecRow& row) {
  if (row.id <= last_exec_)
    throw Error(Code::invalid_argument, "the archive lists a command twice or out of order");
  last_exec_ = row.id;
}

base::ExecId ImportCheck::check_journal(base::ExecId old) {
  if (old <= last_journal_)
    throw Error(Code::invalid_argument, "the archive has a command's output twice or out of order");
  last_journal_ = old;
  const auto found = ids_.find(old);
  if (found) return *found;
  throw Error(Code::invalid_argument, "the archive has output of a command that it does not list");
}

// Checks that each of its states can be mounted.
void ImportCheck::check_layers() const {
  std::vector<size_t> depth(manifest_.layers.size(), 1);
  for (size_t n = depth.size(); n-- > 0;) {
    if (const auto below = manifest_.layers[n].below) depth[n] = depth[*below] + 1;
    if (depth[n] <= kMaxLayers) continue;
    throw Error(Code::unsupported,
                "the archive stacks " + base::count_text(depth[n], "layer") + " on each other",
                "this version of moorage cannot mount such a workspace");
  }
}

void ImportCheck::check_snapshot(const ManifestSnapshot& snapshot) {
  check_snapshot_name(snapshot.name);
  check_external_id(snapshot.external_id);
  if (!snapshot.name.empty() && !snapshot_names_.insert(snapshot.name).second)
    throw Error(Code::invalid_argument, "the archive has snapshot " + snapshot.name + " twice");
}

ReadBack::ReadBack(packs::ByteSink sink, const ReadOptions& options)
    : sink_(std::move(sink)), options_(options), reader_([this] { read(); }) {}

ReadBack::~ReadBack() {
  if (!reader_.joinable()) return;
  pipe_.fail(Error(Code::unavailable, "the archive is incomplete: writing it stopped early"));
  reader_.join();
}

void ReadBack::read() {
  try {
    ImportCheck check(options_.unnamed_file);
    std::string piece;
    const packs::ByteSource source = [&]() -> std::string_view {
      return piece = pipe_.read(kReadBytes);
    };
    found_ = read_archive(source, options_, check);
  } catch (...) {
    failure_ = std::current_exception();
  }
  pipe_.leave();
}

void ReadBack::join() {
  reader_.join();
  if (!failure_) return;
  try {
    std::rethrow_exception(failure_);
  } catch (const Error& error) {
    throw Error(error.code(), "an import would refuse this archive: " + error.message(),
                "nothing was exported, and the workspace is unaffected; if `moorage set` cannot "
                "fix the cause, please report this");
  }
}

void ReadBack::write(std::string_view bytes) {
  try {
    pipe_.write(bytes);
  } catch (const Error&) {  // the reader stopped and has the reason
    join();
    throw;
  }
  held_ += bytes;
  if (held_.size() <= packs::kTrailerBytes) return;
  sink_(std::string_view(held_).substr(0, held_.size() - packs::kTrailerBytes));
  held_.erase(0, held_.size() - packs::kTrailerBytes);
}

void ReadBack::finish(const packs::ArchiveFacts& written) {
  pipe_.finish();
  join();
  if (found_.digest != written.digest || found_.entries != written.entries ||
      found_.stream.sha256 != written.stream.sha256) {
    throw Error(Code::corrupted, "the archive reads back differently than it was written",
                "nothing was exported, and the workspace is unaffected; please report this");
  }
  sink_(held_);
}

}  // namespace moorage::workspace
