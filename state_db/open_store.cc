#include "state_db/open_store.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "base/little_endian.h"
#include "base/os/files.h"
#include "state_db/connection.h"
#include "state_db/damaged_copies.h"
#include "state_db/store_lock.h"

namespace moorage::state_db {
namespace {

constexpr int kBusy_ms = 1'000;
constexpr size_t kMostProblems = 20;
constexpr size_t kProblemsOfATable = 2;

template <typename Id>
bool has_any(const std::string& directory) {
  for (const auto& name : base::list_directory_if_exists(directory)) {
    if (Id::parse(name)) return true;
  }
  return false;
}

bool has_work(const std::string& directory) {
  return has_any<base::LayerId>(directory + "/layers") ||
         has_any<base::WorkspaceId>(directory + "/workspaces");
}

uint32_t word_at(std::string_view bytes, size_t at, bool big_endian) {
  const auto word = base::number_at<uint32_t>(bytes.data() + at);
  return big_endian ? __builtin_bswap32(word) : word;
}

// Checks the first 32 bytes of a log, with their checksum
// (https://www.sqlite.org/fileformat2.html#walformat). All zeros is valid: a power cut leaves such
// a file, and nothing in it was acknowledged.
bool is_log(std::string_view head) {
  constexpr uint32_t kMagic = 0x377f0682;  // its last bit is the byte order of the checksum
  if (head.find_first_not_of('\0') == std::string_view::npos) return true;
  const uint32_t magic = word_at(head, 0, true);
  if ((magic & ~1U) != kMagic) return false;
  uint32_t first = 0;
  uint32_t second = 0;
  for (size_t at = 0; at < 24; at += 8) {
    first += word_at(head, at, (magic & 1U) != 0) + second;
    second += word_at(head, at + 4, (magic & 1U) != 0) + first;
  }
  return first == word_at(head, 24, true) && second == word_at(head, 28, true);
}

struct Found {
  Trouble trouble;
  std::string what;
};

// Problems that SQLite would silently accept.
std::optional<Found> find_trouble(const std::string& directory) {
  constexpr size_t kHeadBytes = 32;
  const std::string path = directory + "/state.db";
  const std::string log_path = path + "-wal";
  std::string log;
  struct stat status {};
  if (stat(log_path.c_str(), &status) == 0 && S_ISREG(status.st_mode))
    log = base::read_at(base::open_file(log_path, O_RDONLY).get(), kHeadBytes, 0);
  const bool is_logged = log.size() == kHeadBytes;
  const auto lacks = [&](const std::string& what) -> std::optional<Found> {
    if (!is_logged && !has_work(directory)) return std::nullopt;
    return Found{Trouble::missing, what + ", but the store " + directory +
                                       (has_work(directory) ? " has workspaces" : " has its log")};
  };
  if (stat(path.c_str(), &status) != 0) {
    if (errno != ENOENT) base::throw_errno("inspect " + path);
    return lacks("state.db is gone");
  }
  if (S_ISDIR(status.st_mode)) return Found{Trouble::damaged, "state.db is a directory"};
  if (!S_ISREG(status.st_mode)) return Found{Trouble::damaged, "state.db is not a regular file"};
  if (status.st_size == 0) return lacks("state.db is empty");
  if (is_logged && !is_log(log))
    return Found{Trouble::damaged, "state.db-wal, the log of state.db, is damaged at its start"};
  return std::nullopt;
}

std::string hint_for(Trouble trouble) {
  if (trouble == Trouble::unknown) return "Install the version that wrote it, or a newer one.";
  return "Stop mooraged, restore a good state.db, remove state.db-wal and state.db-shm, and "
         "start it again; newer layers are kept in lost/.";
}

Unreadable unreadable(Found found, const StoreOptions& options, Fd lock) {
  Unreadable result{.trouble = found.trouble,
                    .what = std::move(found.what),
                    .hint = hint_for(found.trouble),
                    .lock = std::move(lock)};
  if (found.trouble != Trouble::unknown) {
    auto kept = quarantine(options.directory, options.clock->wall_ms());
    result.copy = std::move(kept.directory);
    result.no_copy = std::move(kept.why_not);
  }
  return result;
}

void append_problems(Connection& connection, std::vector<std::string>& problems) {
  const auto tables =
      connection.query_column("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name");
  for (const auto& table : tables) {
    std::vector<std::string> found;
    try {
      found = connection.check("integrity_check(" + state_db::quoted(table) + ")");
    } catch (const Error& error) {
      found = {error.message()};
    }
    for (size_t i = 0; i < std::min(found.size(), kProblemsOfATable); ++i)
      problems.push_back("table " + table + ": " + found[i]);
  }
}

}  // namespace

Opened open_store(const StoreOptions& options) {
  Fd lock = lock_store(options.directory);
  Opened opened;
  if (auto found = find_trouble(options.directory)) {
    opened.unreadable = unreadable(*std::move(found), options, std::move(lock));
    return opened;
  }
  const bool work = has_work(options.directory);
  bool guard_refused = false;
  StoreOptions guarded = options;
  guarded.may_make = options.may_make && !work;
  if (options.before_changes) {
    guarded.before_changes = [&](const std::string& store_id) {
      guard_refused = true;
      options.before_changes(store_id);
      guard_refused = false;
    };
  }
  try {
    opened.store = std::make_unique<Store>(guarded, lock.duplicate());
  } catch (const Error& error) {
    const bool unknown = error.code() == Code::unsupported && work;
    if (guard_refused || (error.code() != Code::corrupted && !unknown)) throw;
    opened.unreadable = unreadable({unknown ? Trouble::unknown : Trouble::damaged, error.message()},
                                   options, std::move(lock));
    if (unknown) opened.unreadable->hint = error.hint();
  }
  return opened;
}

std::vector<std::string> describe_damage(const std::string& directory) {
  const std::string path = directory + "/state.db";
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) || status.st_size == 0)
    return {};
  std::vector<std::string> problems;
  try {
    Connection connection(path, kBusy_ms);
    connection.keep_log();
    problems = connection.check("integrity_check(" + std::to_string(kMostProblems) + ")");
    if (!problems.empty()) append_problems(connection, problems);
  } catch (const Error& error) {
    problems.push_back(error.message());
  }
  return problems;
}

}  // namespace moorage::state_db
