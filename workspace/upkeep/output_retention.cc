#include "workspace/upkeep/output_retention.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <optional>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/journal.h"
#include "base/wire/journal_middle.h"
#include "state_db/store.h"
#include "state_db/store_age.h"
#include "state_db/tables/workspaces.h"

namespace moorage::workspace {
namespace {

// Set on a journal's directory: the store's age when its command was first seen as ended.
constexpr const char* kEndedAge = "trusted.moorage.ended_age_ms";
constexpr uint64_t kBlockBytes = 512;  // the unit of st_blocks
// Shrinks to nine tenths of the limit, so that not every further command removes a journal.
uint64_t shrunk(uint64_t limit) { return limit - limit / 10; }

uint64_t bytes_of(const std::string& directory) {
  struct stat status;
  if (::stat((directory + "/output").c_str(), &status) != 0) return 0;
  return static_cast<uint64_t>(status.st_blocks) * kBlockBytes;
}

std::optional<int64_t> ended_age(const std::string& directory) {
  std::string text(32, '\0');
  const ssize_t size = ::getxattr(directory.c_str(), kEndedAge, text.data(), text.size());
  if (size <= 0) return std::nullopt;
  int64_t age = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + size, age);
  if (error != std::errc() || end != text.data() + size) return std::nullopt;
  return age;
}

// On a file system without such attributes, the output is kept.
void set_ended_age(const std::string& directory, int64_t age_ms) {
  const std::string text = std::to_string(age_ms);
  if (::setxattr(directory.c_str(), kEndedAge, text.data(), text.size(), 0) < 0 &&
      errno != EOPNOTSUPP && errno != ENOENT && errno != ENOSPC && errno != EDQUOT) {
    base::throw_errno("record when a command ended");
  }
}

// The kernel knows whether anybody has the file open, for every release of the warden: it grants a
// read lease only on a file that nobody can write to (fcntl(2)). If it refuses the lease for any
// other reason, the journal counts as being written.
bool is_written(int journal) {
  // An open() in between breaks the lease. SIGURG is ignored by default; SIGIO would kill us.
  base::check(::fcntl(journal, F_SETSIG, SIGURG), "choose the signal of a file lease");
  if (::fcntl(journal, F_SETLEASE, F_RDLCK) < 0) return true;
  base::check(::fcntl(journal, F_SETLEASE, F_UNLCK), "give back a file lease");
  return false;
}

// The offset at the end of the journal, including late output.
uint64_t last_offset(int journal, uint64_t output_bytes) {
  base::JournalReader reader(journal);
  reader.seek_output(output_bytes);
  reader.skip_to_end();
  return reader.output_offset();
}

}  // namespace

std::vector<OutputRetention::Journal> OutputRetention::journals_of(
    base::WorkspaceId workspace) const {
  const std::string place = context_.options.store + "/workspaces/" + workspace.str() + "/journal";
  std::vector<Journal> journals;
  for (const auto& name : base::list_directory_if_exists(place)) {
    if (const auto id = base::ExecId::parse(name))
      journals.push_back({*id, place + "/" + name, bytes_of(place + "/" + name)});
  }
  std::sort(journals.begin(), journals.end(),
            [](const Journal& a, const Journal& b) { return a.exec.value < b.exec.value; });
  return journals;
}

std::optional<uint64_t> OutputRetention::bytes_at_end(base::ExecId exec) {
  const auto row = state_db::ExecTable(context_.store).find(exec);
  if (!row || row->state == state_db::ExecState::running) return std::nullopt;
  return row->outcome.output_bytes;
}

void OutputRetention::exec_ended(const state_db::ExecRow& exec) {
  if (rules_.workspace_bytes == 0) return;
  count(exec.request.workspace, exec.id);
}

std::shared_ptr<OutputRetention::Counted> OutputRetention::counted_of(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  auto& counted = counted_[workspace];
  if (!counted) counted = std::make_shared<Counted>();
  return counted;
}

void OutputRetention::forget(base::WorkspaceId workspace) {
  const std::lock_guard lock(mutex_);
  counted_.erase(workspace);
}

void OutputRetention::count(base::WorkspaceId workspace, base::ExecId newest) {
  const auto counted = counted_of(workspace);
  const std::lock_guard lock(counted->mutex);
  try {
    if (counted->bytes) {
      *counted->bytes += bytes_of(journal_directory(context_.options, workspace, newest));
    } else {
      uint64_t sum = 0;
      for (const Journal& journal : journals_of(workspace)) sum += journal.bytes;
      counted->bytes = sum;
    }
    if (*counted->bytes > rules_.workspace_bytes) counted->bytes = shrink(workspace, newest);
  } catch (const Error& error) {
    counted->bytes.reset();
    if (error.code() == Code::conflict) return;  // being archived: the next command's end retries
    base::log(base::LogLevel::error, "output.retention",
              {{"ws", workspace}, {"error", error.message()}});
  }
}

uint64_t OutputRetention::shrink(base::WorkspaceId workspace, base::ExecId newest) {
  const auto guard = context_.locks.lock(workspace.str(), "output", std::chrono::milliseconds(0));
  const auto journals = journals_of(workspace);
  uint64_t sum = 0;
  for (const Journal& journal : journals) sum += journal.bytes;
  for (const Journal& journal : journals) {
    if (sum <= shrunk(rules_.workspace_bytes)) break;
    if (journal.exec != newest) sum -= remove(workspace, journal, "size");
  }
  return sum;
}

// Late output comes after the last count.
void OutputRetention::sweep() {
  std::vector<base::WorkspaceId> counted;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [workspace, bytes] : counted_) counted.push_back(workspace);
  }
  for (const auto workspace : counted) {
    forget(workspace);
    count(workspace, {});
  }
  if (rules_.keep_ms == 0) return;
  const int64_t now_ms = state_db::StoreAge(context_.store).now_ms();
  for (const auto& row : state_db::WorkspaceTable(context_.store).list()) {
    try {
      sweep_workspace(row.id, now_ms);
    } catch (const Error& error) {
      if (error.code() == Code::conflict) continue;  // busy: the next sweep retries
      base::log(base::LogLevel::error, "output.retention",
                {{"ws", row.id}, {"error", error.message()}});
    }
  }
}

void OutputRetention::sweep_workspace(base::WorkspaceId workspace, int64_t now_ms) {
  std::vector<Journal> old;
  for (Journal& journal : journals_of(workspace)) {
    const auto age = ended_age(journal.directory);
    if (!age && bytes_at_end(journal.exec)) set_ended_age(journal.directory, now_ms);
    if (age && now_ms - *age >= rules_.keep_ms) old.push_back(std::move(journal));
  }
  if (old.empty()) return;
  const auto guard = context_.locks.lock(workspace.str(), "output", std::chrono::milliseconds(0));
  for (const Journal& journal : old) remove(workspace, journal, "age");
  forget(workspace);
}

// A process that the command left may still write late output: then only the output before the end
// is cut, and a gap replaces it, because at most kLateBytes (warden/output/journal_sink.h) can
// follow.
uint64_t OutputRetention::remove(base::WorkspaceId workspace, const Journal& journal,
                                 const char* why) {
  const auto output_bytes = bytes_at_end(journal.exec);
  if (!output_bytes) return 0;
  uint64_t freed = journal.bytes;
  state_db::ExecTable table(context_.store);
  const std::string path = journal.directory + "/output";
  const base::Fd file = base::path_exists(path) ? base::open_file(path, O_RDONLY) : base::Fd();
  if (file && is_written(file.get())) {
    const auto cut = base::cut_before_end(file.get(), *output_bytes);
    if (!cut) return 0;
    table.raise_output(journal.exec, {*output_bytes, *output_bytes});
    base::cut_journal(path, *cut);
    freed -= std::min(freed, bytes_of(journal.directory));
  } else {
    // Before removing the file: so the row also records that there was late output.
    if (file) table.raise_output(journal.exec, {last_offset(file.get(), *output_bytes), 0});
    base::remove_tree(journal.directory);
  }
  base::log(base::LogLevel::info, "output.removed",
            {{"ws", workspace}, {"ex", journal.exec}, {"bytes", freed}, {"why", why}});
  return freed;
}

}  // namespace moorage::workspace
