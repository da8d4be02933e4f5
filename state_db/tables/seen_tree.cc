#include "state_db/tables/seen_tree.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/error.h"
#include "state_db/statement.h"

namespace moorage::state_db {
namespace {

constexpr size_t kMostAhead = 64;  // entries
constexpr size_t kMostAheadBytes = 64 << 10;

// The planner has no statistics, so statements name the index they need (INDEXED BY). The
// transaction never ends, for speed, as nothing needs to be durable. Pages beyond the cache (KiB)
// go to the file.
constexpr const char* kOpening = R"(
PRAGMA locking_mode = EXCLUSIVE;
PRAGMA journal_mode = OFF;
PRAGMA synchronous = OFF;
PRAGMA cache_size = -8192;
BEGIN EXCLUSIVE;
CREATE TABLE seen (
  tree INTEGER NOT NULL,
  key BLOB NOT NULL,
  inode INTEGER NOT NULL,
  changed_ns INTEGER NOT NULL,
  looked_ns INTEGER NOT NULL,
  size INTEGER NOT NULL,
  linked INTEGER NOT NULL,
  directory INTEGER NOT NULL,
  gone INTEGER NOT NULL,
  round INTEGER NOT NULL,          -- when it was put, removed or put in doubt
  cleared_round INTEGER NOT NULL,
  PRIMARY KEY (tree, key)
) WITHOUT ROWID;
CREATE INDEX seen_linked ON seen (tree, inode) WHERE linked;
CREATE INDEX seen_gone ON seen (tree) WHERE gone;
CREATE TABLE sent_links (
  tree INTEGER NOT NULL,
  inode INTEGER NOT NULL,
  path BLOB NOT NULL,
  changed_ns INTEGER NOT NULL,
  PRIMARY KEY (tree, inode)
) WITHOUT ROWID;
)";

// Keys sort in the order of the walk: the end of a name sorts before all bytes, and each name
// starts with a mark for "comes last".
std::string key_of(std::string_view path) {
  std::string key;
  key.reserve(path.size() + 8);
  for (;;) {
    const size_t end = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, end);
    key += name == kWalkedLast ? '\2' : '\1';
    key += name;
    if (end == path.size()) return key;
    key += '\0';
    path.remove_prefix(end + 1);
  }
}

std::string path_of(std::string_view key) {
  std::string path;
  path.reserve(key.size());
  for (bool at_begin = true; const char c : key) {
    if (!at_begin) path += c == '\0' ? '/' : c;
    at_begin = c == '\0';
  }
  return path;
}

constexpr std::string_view kFind =
    "SELECT key, inode, changed_ns, looked_ns, size, linked, directory, gone, cleared_round "
    "FROM seen WHERE tree = ? AND key = ?";
constexpr std::string_view kAhead =
    "SELECT key, inode, changed_ns, looked_ns, size, linked, directory, gone, cleared_round "
    "FROM seen WHERE tree = ? AND key > ? ORDER BY key";
constexpr std::string_view kOfRound =
    "SELECT key, inode, changed_ns, looked_ns, size, linked, directory, gone, cleared_round "
    "FROM seen WHERE tree = ? AND round = ? ORDER BY key";

void read(Statement& query, int64_t round, std::string& key, SeenEntry& entry) {
  int64_t cleared_round = 0;
  query.read(key, entry.inode, entry.changed_ns, entry.looked_ns, entry.size, entry.linked,
             entry.directory, entry.gone, cleared_round);
  entry.path = path_of(key);
  entry.cleared = cleared_round == round;
}

// Removes a file left by an earlier process.
std::string path_for_opening(const std::string& directory) {
  std::string path = directory + "/replica.seen";
  if (unlink(path.c_str()) != 0 && errno != ENOENT) base::throw_errno("remove " + path);
  return path;
}

}  // namespace

SeenDatabase::SeenDatabase(const std::string& directory)
    : connection_(path_for_opening(directory), 0, "replica.seen") {
  const std::string path = directory + "/replica.seen";
  base::check(unlink(path.c_str()), "remove " + path);
  connection_.execute(kOpening);
}

template <typename Work>
auto SeenDatabase::guarded(const Work& work) {
  try {
    return work();
  } catch (const std::exception&) {
    broken_ = true;
    throw;
  }
}

Statement SeenDatabase::prepare(std::string_view sql) {
  return Statement(std::unique_lock(mutex_), connection_, sql);
}

int64_t SeenDatabase::run(std::string_view sql, const auto&... values) {
  return guarded([&] { return prepare(sql).run(values...); });
}

SeenTree::SeenTree(SeenDatabase& database) : database_(database), tree_(++database.last_tree_) {}

SeenTree::~SeenTree() {
  if (database_.broken()) return;
  try {
    database_.run("DELETE FROM seen WHERE tree = ?", tree_);
    database_.run("DELETE FROM sent_links WHERE tree = ?", tree_);
  } catch (const std::exception&) {
    // The database is marked as broken and discarded whole.
  }
}

std::optional<SeenEntry> SeenTree::find(const std::string& path) {
  const std::string key = key_of(path);
  const auto read_row = [this](Statement& query, SeenEntry& entry) {
    std::string found;
    read(query, round_, found, entry);
  };
  return database_.guarded(
      [&] { return database_.prepare(kFind).first<SeenEntry>(read_row, tree_, Blob{key}); });
}

void SeenTree::put(const SeenEntry& entry) {
  database_.run(
      "INSERT INTO seen VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, 0) ON CONFLICT DO UPDATE SET "
      "inode = excluded.inode, changed_ns = excluded.changed_ns, "
      "looked_ns = excluded.looked_ns, size = excluded.size, linked = excluded.linked, "
      "directory = excluded.directory, gone = 0, round = excluded.round, "
      "cleared_round = iif(directory AND NOT excluded.directory, excluded.round, cleared_round)",
      tree_, Blob{key_of(entry.path)}, entry.inode, entry.changed_ns, entry.looked_ns, entry.size,
      entry.linked, entry.directory, round_);
}

void SeenTree::set_gone(const std::string& path) {
  database_.run(
      "UPDATE seen SET gone = 1, directory = 0, linked = 0, round = ?, cleared_round = ? "
      "WHERE tree = ? AND key = ?",
      round_, round_, tree_, Blob{key_of(path)});
}

void SeenTree::erase(const std::string& path) {
  database_.run("DELETE FROM seen WHERE tree = ? AND key = ?", tree_, Blob{key_of(path)});
}

void SeenTree::erase_below(const std::string& path) {
  const std::string key = key_of(path);
  database_.run("DELETE FROM seen WHERE tree = ? AND key > ? AND key < ?", tree_, Blob{key + '\0'},
                Blob{key + '\1'});
}

uint64_t SeenTree::doubt_names(uint64_t inode, const std::string& except) {
  const int64_t names = database_.run(
      "UPDATE seen INDEXED BY seen_linked SET looked_ns = 0, round = ? "
      "WHERE tree = ? AND inode = ? AND linked AND key <> ?",
      round_, tree_, inode, Blob{key_of(except)});
  if (names > 0) ahead_.clear();  // cached rows are outdated
  return static_cast<uint64_t>(names);
}

void SeenTree::start_walk() {
  ahead_.clear();
  walked_.clear();
  at_end_ = false;
  database_.run("DELETE FROM sent_links WHERE tree = ?", tree_);
}

void SeenTree::fill() {
  database_.guarded([&] {
    Statement query = database_.prepare(kAhead);
    query.bind(tree_, Blob{walked_});
    size_t bytes = 0;
    while (ahead_.size() < kMostAhead && bytes < kMostAheadBytes) {
      if (!query.step()) {
        at_end_ = ahead_.empty();
        return;
      }
      Ahead next;
      read(query, round_, next.key, next.entry);
      bytes += next.key.size();
      ahead_.push_back(std::move(next));
    }
  });
}

// Null: no bound. Skips entries put since the last call: walked_ is moved to the current place.
std::optional<SeenEntry> SeenTree::next_before(const std::string* key) {
  for (;;) {
    if (ahead_.empty() && !at_end_) fill();
    if (ahead_.empty() || (key && ahead_.front().key >= *key)) return std::nullopt;
    SeenEntry entry = std::move(ahead_.front().entry);
    walked_ = std::move(ahead_.front().key);
    ahead_.pop_front();
    if (!entry.gone) return entry;
  }
}

std::optional<SeenEntry> SeenTree::passed_over(const std::string& path) {
  const std::string key = key_of(path);
  return next_before(&key);
}

std::optional<SeenEntry> SeenTree::rest() { return next_before(nullptr); }

std::optional<SeenEntry> SeenTree::arrive(const std::string& path) {
  std::string key = key_of(path);
  if (ahead_.empty() && !at_end_) fill();
  std::optional<SeenEntry> entry;
  if (!ahead_.empty() && ahead_.front().key == key) {
    entry = std::move(ahead_.front().entry);
    ahead_.pop_front();
  }
  walked_ = std::move(key);
  if (entry && entry->gone) entry.reset();
  return entry;
}

void SeenTree::put_link(uint64_t inode, const SentLink& link) {
  database_.run("INSERT OR REPLACE INTO sent_links VALUES (?, ?, ?, ?)", tree_, inode,
                Blob{link.path}, link.changed_ns);
}

std::optional<SeenTree::SentLink> SeenTree::find_link(uint64_t inode) {
  const auto read_row = [](Statement& query, SentLink& link) {
    query.read(link.path, link.changed_ns);
  };
  return database_.guarded([&] {
    return database_.prepare("SELECT path, changed_ns FROM sent_links WHERE tree = ? AND inode = ?")
        .first<SentLink>(read_row, tree_, inode);
  });
}

// An exception of the sink does not mark the database as broken.
void SeenTree::list_round(const std::function<void(const SeenEntry&)>& sink) {
  std::string key;
  SeenEntry entry;
  Statement query = database_.guarded([&] { return database_.prepare(kOfRound); });
  query.bind(tree_, round_);
  while (database_.guarded([&] { return query.step(); })) {
    read(query, round_, key, entry);
    sink(entry);
  }
}

void SeenTree::end_round() {
  database_.run("DELETE FROM seen INDEXED BY seen_gone WHERE tree = ? AND gone", tree_);
  ++round_;
}

}  // namespace moorage::state_db
