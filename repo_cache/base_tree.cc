#include "repo_cache/base_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <sstream>
#include <thread>

#include "base/crash_point.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/files.h"
#include "base/keyed_mutex.h"
#include "base/log.h"
#include "base/size_text.h"
#include "repo_cache/blob_writer.h"
#include "repo_cache/git_command.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/owner_thread.h"
#include "repo_cache/workspace_git.h"

namespace moorage::repo_cache {

namespace {

using base::Code;
using base::Error;

constexpr size_t kMinPiece = 64;  // files
constexpr uint64_t kLookBytes = 4 << 20;
constexpr size_t kPiecesAThread = 8;  // at first; pieces shrink towards the end

MOORAGE_CRASH_POINT(tree_written, "tree.written");

std::string manifest_of(const std::string& commit, const BaseTreeInfo& info) {
  std::ostringstream out;
  out << "moorage-tree 1\ncommit " << commit << "\nfiles " << info.files << "\ndirectories "
      << info.directories << "\nbytes " << info.bytes << "\nsubmodules " << info.submodules
      << "\nlfs_files " << info.lfs_files << "\nother_filters " << info.other_filters
      << "\nindex_bytes " << info.index_bytes << "\nroot " << info.root << "\n";
  return out.str();
}

// Empty in a manifest of an older release.
void parse_look(std::istream& in, BaseTreeInfo& info) {
  std::string word;
  if (in >> word >> info.index_bytes >> word >> info.root && word == "root") return;
  info.index_bytes = 0;
  info.root.clear();
}

BaseTreeInfo parse_manifest(const std::string& text, const std::string& expected_commit) {
  std::istringstream in(text);
  std::string word;
  int version = 0;
  std::string commit;
  BaseTreeInfo info;
  in >> word >> version >> word >> commit >> word >> info.files >> word >> info.directories >>
      word >> info.bytes >> word >> info.submodules >> word >> info.lfs_files >> word >>
      info.other_filters;
  if (!in || version != 1 || commit != expected_commit)
    throw Error(Code::corrupted, "the manifest of a base tree is damaged");
  parse_look(in, info);
  return info;
}

// Names and kinds at the root: what is missing there is seen without a walk.
std::string root_of(const std::string& tree) {
  std::string text;
  const base::Fd root = base::open_directory(tree);
  for (const auto& name : base::list_directory(root.get())) {
    struct stat status {};
    base::check(fstatat(root.get(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW), "look at " + tree);
    text += name + '\0' + std::to_string(status.st_mode & S_IFMT) + "\n";
  }
  return base::sha256_hex(text).substr(0, 16);
}

uint64_t index_bytes_of(const std::string& tree) {
  struct stat status {};
  base::check(lstat((tree + "/.git/index").c_str(), &status), "look at the index of " + tree);
  return static_cast<uint64_t>(status.st_size);
}

unsigned thread_count(const RepoCacheOptions& options) {
  if (options.checkout_threads) return options.checkout_threads;
  return std::clamp(std::thread::hardware_concurrency(), 1u, 8u);
}

void add(BaseTreeInfo& total, const BaseTreeInfo& part) {
  total.files += part.files;
  total.bytes += part.bytes;
  total.submodules += part.submodules;
  total.lfs_files += part.lfs_files;
  total.other_filters += part.other_filters;
}

// One checkout: directories first, then all files in pieces that the threads take one after the
// other.
class Checkout {
 public:
  Checkout(const RepoCache& cache, std::string git_directory, const std::string& commit,
           const Deadline& deadline, const ProgressFunction& progress,
           const std::function<void()>& look)
      : owner_(cache.options().disk_first_id + 1000),
        threads_(thread_count(cache.options())),
        git_directory_(std::move(git_directory)),
        commit_(commit),
        deadline_(deadline),
        progress_(progress),
        look_(look) {
    const GitRepository repository = open_mirror(git_directory_);
    listing_ = list_tree(repository.get(), commit);
    attributes_ = read_attributes(repository.get(), listing_);
    mtime_s_ = file_time_of(repository.get(), commit);
    stats_.resize(listing_.files.size());
  }

  BaseTreeInfo write(const std::string& place, const std::string& origin_url) {
    run_as_owner(owner_, 1, [&](unsigned) { make_directories(place); });
    const base::Fd root = base::open_directory(place);
    run_as_owner(owner_, threads_, [&](unsigned) { write_pieces(root.get()); });
    run_as_owner(owner_, 1, [&](unsigned) {
      write_git_directory(place, WorkspaceGit{commit_, origin_url, make_index(listing_, stats_)});
    });
    total_.directories = listing_.directories.size() - 1;
    return total_;
  }

 private:
  struct Piece {
    size_t first;
    size_t end;
  };

  void make_directories(const std::string& place) {
    base::check(mkdir(place.c_str(), 0755), "create the tree");
    const base::Fd root = base::open_directory(place);
    for (size_t i = 1; i < listing_.directories.size(); ++i) {
      const std::string& path = listing_.directories[i].path;
      base::check(mkdirat(root.get(), path.c_str(), 0755),
                  "create \"" + base::escape_for_message(path) + "\"");
    }
  }

  void write_pieces(int root) {
    try {
      BlobWriter writer(git_directory_, attributes_, mtime_s_);
      for (Piece piece = take_piece(); piece.first < piece.end && !failed_; piece = take_piece()) {
        write_piece(root, piece, writer);
      }
      const std::lock_guard lock(mutex_);
      add(total_, writer.counts());
    } catch (...) {
      failed_ = true;
      throw;
    }
  }

  // Large pieces keep the threads in different directories, where they do not wait for each other's
  // lock; small ones at the end let them finish together.
  Piece take_piece() {
    const size_t count = listing_.files.size();
    size_t first = next_.load();
    size_t end = 0;
    do {
      end = std::min(count,
                     first + std::max(kMinPiece, (count - first) / (threads_ * kPiecesAThread)));
    } while (!next_.compare_exchange_weak(first, end));
    return {first, end};
  }

  // By paths from the root: every directory in them was made by us before.
  void write_piece(int root, const Piece& piece, BlobWriter& writer) {
    uint64_t written = 0;
    for (size_t i = piece.first; i < piece.end && !failed_; ++i) {
      const ListedFile& file = listing_.files[i];
      stats_[i] = writer.write(root, file.path.c_str(), file);
      written += stats_[i].size;
      if (i % kMinPiece == 0 || written >= kLookBytes) {
        deadline_.left();
        if (look_) look_();
        written = 0;
      }
      report();
    }
  }

  void report() {
    const size_t done = ++done_;
    if (!progress_) return;
    const int percent = static_cast<int>(done * 100 / listing_.files.size());
    int shown = percent_.load();
    if (percent <= shown || !percent_.compare_exchange_strong(shown, percent)) return;
    progress_(Progress{"checkout", percent, base::count_text(done, "file")});
  }

  const uint32_t owner_;
  const unsigned threads_;
  const std::string git_directory_;
  const std::string commit_;
  const Deadline& deadline_;
  const ProgressFunction& progress_;
  const std::function<void()>& look_;
  TreeListing listing_;
  Attributes attributes_;
  uint32_t mtime_s_ = 0;
  std::vector<FileStat> stats_;  // of listing_.files; each is written by one thread
  std::atomic<size_t> next_{0};
  std::atomic<size_t> done_{0};
  std::atomic<int> percent_{-1};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  BaseTreeInfo total_;
};

}  // namespace

struct BaseTrees::Writers {
  base::KeyedMutex mutex;
};

BaseTrees::BaseTrees(const RepoCache& cache)
    : cache_(cache), writers_(std::make_unique<Writers>()) {}
BaseTrees::~BaseTrees() = default;

std::string BaseTrees::directory(const std::string& repo, const std::string& commit) const {
  return cache_.directory(repo) + "/trees/" + format_oid(parse_oid(commit));
}

std::string BaseTrees::tree_path(const std::string& repo, const std::string& commit) const {
  return directory(repo, commit) + "/tree";
}

bool BaseTrees::exists(const std::string& repo, const std::string& commit) const {
  return base::path_exists(directory(repo, commit));
}

BaseTreeInfo BaseTrees::info(const std::string& repo, const std::string& commit) const {
  return parse_manifest(base::read_file(directory(repo, commit) + "/manifest", 64 << 10), commit);
}

bool BaseTrees::whole(const std::string& repo, const std::string& commit) const {
  try {
    const std::string tree = tree_path(repo, commit);
    const BaseTreeInfo written = info(repo, commit);
    const uint64_t index_bytes = index_bytes_of(tree);
    if (written.root.empty()) return index_bytes > 0;
    return index_bytes == written.index_bytes && root_of(tree) == written.root &&
           base::path_exists(tree + "/.git/HEAD");
  } catch (const Error& error) {
    base::log(base::LogLevel::warning, "base_tree.damaged",
              {{"repo", repo}, {"commit", commit}, {"error", error.message()}});
    return false;
  }
}

std::string BaseTrees::damage(const std::string& repo, const std::string& commit) const {
  if (!whole(repo, commit)) return "its manifest, its index or its root is not as it was written";
  const BaseTreeInfo written = info(repo, commit);
  base::UsageLimits limits;
  limits.max_memory_bytes = 256 << 20;
  // The index and the rest of .git are counted, too, so only fewer files are a damage.
  const auto found = base::tree_usage(tree_path(repo, commit), limits);
  const uint64_t expected = written.files + written.directories;
  if (found.complete && found.inodes < expected) {
    return "it has " + std::to_string(found.inodes) + " files and directories, and should have " +
           std::to_string(expected);
  }
  return {};
}

std::vector<std::string> BaseTrees::list(const std::string& repo) const {
  const std::string trees = cache_.directory(repo) + "/trees";
  if (!base::path_exists(trees)) return {};
  std::vector<std::string> commits = base::list_directory(trees);
  std::erase_if(commits, [](const std::string& name) { return name.size() != GIT_OID_HEXSZ; });
  return commits;
}

BaseTreeInfo BaseTrees::write(const std::string& repo, const std::string& commit,
                              const std::string& origin_url, Duration patience,
                              const ProgressFunction& progress, const std::function<void()>& look) {
  const Deadline deadline(patience);
  const std::string place = directory(repo, commit);
  if (base::path_exists(place)) return info(repo, commit);
  const auto guard = writers_->mutex.lock(repo + "/" + commit, "checkout", patience);
  if (base::path_exists(place)) return info(repo, commit);
  base::make_directories(cache_.directory(repo) + "/trees");
  const std::string temporary = place + ".new";
  base::remove_tree(temporary);
  base::make_directories(temporary, 0755);
  try {
    Checkout checkout(cache_, cache_.mirror_directory(repo), commit, deadline, progress, look);
    BaseTreeInfo info = checkout.write(temporary + "/tree", origin_url);
    info.index_bytes = index_bytes_of(temporary + "/tree");
    info.root = root_of(temporary + "/tree");
    base::write_file(temporary + "/manifest", manifest_of(commit, info));
    tree_written.pass();
    base::rename_into_place(temporary, place);
    return info;
  } catch (const Error& error) {
    base::remove_tree(temporary);
    if (error.code() == Code::corrupted) cache_.mark_suspect(repo);
    throw;
  }
}

void BaseTrees::sync(const std::string& repo, const std::string& commit) const {
  base::sync_file_system(directory(repo, commit));
}

void BaseTrees::remove(const std::string& repo, const std::string& commit) {
  const std::string place = directory(repo, commit);
  const auto guard = writers_->mutex.lock(repo + "/" + commit, "remove");
  if (!base::path_exists(place)) return;
  // Out of the way first: a half-removed tree must not be found under its name.
  const std::string doomed = place + ".old";
  base::remove_tree(doomed);
  base::rename_into_place(place, doomed);
  base::remove_tree(doomed);
}

void BaseTrees::set_aside(const std::string& repo, const std::string& commit) {
  const std::string place = directory(repo, commit);
  const auto guard = writers_->mutex.lock(repo + "/" + commit, "set aside");
  for (int number = 1; base::path_exists(place); ++number) {
    const std::string aside = place + ".damaged-" + std::to_string(number);
    if (!base::path_exists(aside)) base::rename_into_place(place, aside);
  }
}

std::vector<std::string> BaseTrees::leftovers(const std::string& repo) const {
  const std::string trees = cache_.directory(repo) + "/trees";
  if (!base::path_exists(trees)) return {};
  std::vector<std::string> names = base::list_directory(trees);
  std::erase_if(names, [](const std::string& name) {
    const size_t dot = name.find('.');
    return dot != GIT_OID_HEXSZ;
  });
  return names;
}

void BaseTrees::remove_leftover(const std::string& repo, const std::string& name) {
  const std::string commit = name.substr(0, GIT_OID_HEXSZ);
  const auto guard = writers_->mutex.lock(repo + "/" + commit, "remove", Duration(0));
  base::remove_tree(cache_.directory(repo) + "/trees/" + name);
}

}  // namespace moorage::repo_cache
