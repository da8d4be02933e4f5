#include "repo_cache/base_tree.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <thread>

#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/size_text.h"
#include "repo_cache/base_manifest.h"
#include "repo_cache/blob_writer.h"
#include "repo_cache/fsuid_threads.h"
#include "repo_cache/git_command.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/workspace_git.h"

namespace moorage::repo_cache {

namespace {

constexpr const char* kDamaged = ".damaged-";
constexpr const char* kTorn = ".torn-";
constexpr size_t kMinPiece = 64;  // files
constexpr uint64_t kCheckBytes = 4 << 20;
constexpr size_t kPiecesAThread = 8;  // at first; later pieces are smaller

MOORAGE_CRASH_POINT(tree_written, "tree.written");
MOORAGE_CRASH_POINT(whole_written, "rebase.after_tree");
MOORAGE_CRASH_POINT(whole_counts, "rebase.after_manifest");

// Records the facts that whole() checks.
void record_index_facts(const std::string& tree, BaseTreeInfo& info) {
  info.index_bytes = index_bytes_of(tree);
  info.root = root_of(tree);
}

BaseTreeInfo whole_info(const std::string& tree, BaseTreeInfo info) {
  record_index_facts(tree, info);
  info.own_files = info.files + info.directories;
  info.own_bytes = info.bytes;
  return info;
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

// One checkout: directories first, then all files in pieces that the threads take in turn.
class Checkout {
 public:
  Checkout(const RepoCache& cache, std::string git_directory, const std::string& commit,
           const Deadline& deadline, ProgressFunction progress, std::function<void()> check_room,
           const std::string& old_index)
      : options_(cache.options()),
        owner_(options_.disk_first_id + 1000),
        threads_(thread_count(cache.options())),
        git_directory_(std::move(git_directory)),
        commit_(commit),
        deadline_(deadline),
        progress_(std::move(progress)),
        check_room_(std::move(check_room)) {
    const GitRepository repository = open_mirror(git_directory_);
    listing_ = list_tree(repository.get(), commit);
    attributes_ = read_attributes(repository.get(), listing_, cache.options().max_attribute_steps);
    mtime_s_ = file_time_of(repository.get(), commit);
    stats_.resize(listing_.files.size());
    if (!old_index.empty()) take_times(read_index(old_index));
  }

  BaseTreeInfo write(const std::string& place, const std::string& origin_url) {
    run_as_owner(owner_, 1, [&](unsigned) { make_directories(place); });
    const Fd root = base::open_directory(place);
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

  void take_times(const std::vector<IndexedFile>& old_files) {
    times_s_.assign(listing_.files.size(), mtime_s_);
    auto old = old_files.begin();
    for (size_t i = 0; i < listing_.files.size(); ++i) {
      while (old != old_files.end() && old->path < listing_.files[i].path) ++old;
      if (old != old_files.end() && old->path == listing_.files[i].path)
        times_s_[i] = old->stat.mtime_s;
    }
  }

  void make_directories(const std::string& place) {
    base::check(mkdir(place.c_str(), 0755), "create the base tree");
    const Fd root = base::open_directory(place);
    for (size_t i = 1; i < listing_.directories.size(); ++i) {
      const std::string& path = listing_.directories[i].path;
      base::check(mkdirat(root.get(), path.c_str(), 0755),
                  "create \"" + base::escape_for_message(path) + "\"");
    }
  }

  void write_pieces(int root) {
    try {
      BlobWriter writer(options_, git_directory_, attributes_, mtime_s_);
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

  // Large pieces keep the threads in different directories, so they do not contend for one lock;
  // small ones at the end let them finish together.
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

  // Uses paths from the root: we created all directories in them.
  void write_piece(int root, const Piece& piece, BlobWriter& writer) {
    uint64_t written = 0;
    for (size_t i = piece.first; i < piece.end && !failed_; ++i) {
      const ListedFile& file = listing_.files[i];
      if (!times_s_.empty()) writer.set_time(times_s_[i]);
      stats_[i] = writer.write(root, file.path.c_str(), file);
      written += stats_[i].size;
      if (i % kMinPiece == 0 || written >= kCheckBytes) {
        deadline_.left();
        if (check_room_) check_room_();
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

  const RepoCacheOptions& options_;
  const uint32_t owner_;
  const unsigned threads_;
  const std::string git_directory_;
  const std::string commit_;
  const Deadline& deadline_;
  const ProgressFunction progress_;
  const std::function<void()> check_room_;
  TreeListing listing_;
  Attributes attributes_;
  uint32_t mtime_s_ = 0;
  std::vector<uint32_t> times_s_;  // of listing_.files; empty: all have mtime_s_
  std::vector<FileStat> stats_;    // of listing_.files; each is written by one thread
  std::atomic<size_t> next_{0};
  std::atomic<size_t> done_{0};
  std::atomic<int> percent_{-1};
  std::atomic<bool> failed_{false};
  std::mutex mutex_;
  BaseTreeInfo total_;
};

}  // namespace

std::string BaseTrees::directory(const std::string& repo, const std::string& commit) const {
  return cache_.directory(repo) + "/trees/" + format_oid(parse_oid(commit));
}

bool BaseTrees::exists(const std::string& repo, const std::string& commit) const {
  return base::path_exists(directory(repo, commit));
}

BaseTreeInfo BaseTrees::info(const std::string& repo, const std::string& commit) const {
  return read_manifest(directory(repo, commit), commit);
}

BaseTreePlaces base_tree_places(const std::string& trees, const std::string& commit) {
  BaseTreePlaces places;
  std::string at = commit;
  for (size_t depth = 0; depth <= kMaxDeltas; ++depth) {
    const std::string directory = trees + "/" + at;
    const BaseTreeInfo info = read_manifest(directory, at);
    if (info.parent.empty()) {
      places.tree = files_of(directory, info);
      return places;
    }
    places.deltas.push_back(files_of(directory, info));
    at = info.parent;
  }
  throw Error(Code::corrupted, "base tree " + commit + " builds on more than " +
                                   std::to_string(kMaxDeltas) + " others");
}

BaseTreePlaces BaseTrees::places(const std::string& repo, const std::string& commit) const {
  const std::string name = format_oid(parse_oid(commit));
  // Take it before reading, so that nothing is removed between reading and returning.
  auto in_use = std::make_shared<const char>();
  {
    const std::lock_guard lock(mutex_);
    auto& known = readers_[repo][name];
    if (auto others = known.lock()) {
      in_use = std::static_pointer_cast<const char>(others);
    } else {
      known = in_use;
    }
  }
  auto places = base_tree_places(cache_.directory(repo) + "/trees", name);
  places.in_use = std::move(in_use);
  return places;
}

std::set<std::string> BaseTrees::in_use(const std::string& repo) const {
  const std::lock_guard lock(mutex_);
  auto& readers = readers_[repo];
  std::erase_if(readers, [](const auto& reader) { return reader.second.expired(); });
  std::set<std::string> commits;
  for (const auto& [commit, reader] : readers) commits.insert(commit);
  return commits;
}

bool BaseTrees::whole(const std::string& repo, const std::string& commit) const {
  try {
    const BaseTreeInfo written = info(repo, commit);
    const std::string tree = files_of(directory(repo, commit), written);
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
  if (!whole(repo, commit)) return "its manifest, its index or its root has changed";
  const BaseTreeInfo written = info(repo, commit);
  base::UsageLimits limits;
  limits.max_memory_bytes = 256 << 20;
  // The count includes the index and the rest of .git, so only missing files are damage.
  const auto found = base::tree_usage(files_of(directory(repo, commit), written), limits);
  const uint64_t expected = written.own_files;
  if (found.complete && found.inodes < expected) {
    return "it has " + std::to_string(found.inodes) + " files and directories instead of " +
           std::to_string(expected);
  }
  return {};
}

std::string BaseTrees::index(const std::string& repo, const std::string& commit) const {
  try {
    const std::string place = directory(repo, commit);
    std::string bytes =
        base::read_file(files_of(place, read_manifest(place, commit)) + "/.git/index", 2ull << 30);
    read_index(bytes);
    return bytes;
  } catch (const Error& error) {
    base::log(base::LogLevel::info, "base_tree.no_index",
              {{"repo", repo}, {"commit", commit}, {"error", error.message()}});
    return {};
  }
}

std::vector<std::string> BaseTrees::list(const std::string& repo) const {
  const std::string trees = cache_.directory(repo) + "/trees";
  std::vector<std::string> commits = base::list_directory_if_exists(trees);
  std::erase_if(commits, [](const std::string& name) { return name.size() != GIT_OID_HEXSZ; });
  return commits;
}

BaseTreeInfo BaseTrees::write(const std::string& repo, const std::string& commit,
                              const std::string& origin_url, Duration patience,
                              const ProgressFunction& progress,
                              const std::function<void()>& check_room,
                              const std::string& old_index) {
  const Deadline deadline(patience);
  const std::string place = directory(repo, commit);
  if (base::path_exists(place)) return info(repo, commit);
  const auto guard = writers_.lock(repo + "/" + commit, "checkout", patience);
  if (base::path_exists(place)) return info(repo, commit);
  base::make_directories(cache_.directory(repo) + "/trees");
  const std::string temporary = place + ".new";
  base::remove_tree(temporary);
  base::make_directories(temporary, 0755);
  try {
    Checkout checkout(cache_, cache_.mirror_directory(repo), commit, deadline, progress, check_room,
                      old_index);
    const BaseTreeInfo info =
        whole_info(temporary + "/tree", checkout.write(temporary + "/tree", origin_url));
    write_manifest(temporary, commit, info);
    tree_written.pass();
    base::rename_into_place(temporary, place);
    return info;
  } catch (const Error& error) {
    base::remove_tree(temporary);
    if (error.code() == Code::corrupted) cache_.mark_suspect(repo);
    throw;
  }
}

BaseTreeInfo BaseTrees::write_over(const std::string& repo, const std::string& commit,
                                   const std::string& parent, Duration patience) {
  const std::string place = directory(repo, commit);
  if (base::path_exists(place)) return info(repo, commit);
  const auto guard = writers_.lock(repo + "/" + commit, "checkout", patience);
  if (base::path_exists(place)) return info(repo, commit);
  const std::string temporary = place + ".new";
  base::remove_tree(temporary);
  base::make_directories(temporary, 0755);
  try {
    const std::string delta = temporary + "/delta";
    run_as_owner(cache_.options().disk_first_id + 1000, 1,
                 [&](unsigned) { base::check(mkdir(delta.c_str(), 0755), "create " + delta); });
    BaseTreeInfo info;
    const Fd upper = base::open_directory(delta);
    write_delta_with_index(repo, parent, commit, upper.get(), &info);
    record_index_facts(delta, info);
    info.parent = parent;
    write_manifest(temporary, commit, info);
    tree_written.pass();
    base::rename_into_place(temporary, place);
    return info;
  } catch (const Error&) {
    base::remove_tree(temporary);
    throw;
  }
}

BaseTreeInfo BaseTrees::make_whole(const std::string& repo, const std::string& commit,
                                   const std::string& origin_url, Duration patience,
                                   const std::function<void()>& check_room) {
  const Deadline deadline(patience);
  const std::string place = directory(repo, commit);
  const auto guard = writers_.lock(repo + "/" + commit, "checkout", patience);
  if (BaseTreeInfo present = info(repo, commit); present.parent.empty()) return present;
  const std::string old_index = index(repo, commit);
  const std::string temporary = place + "/tree.new";
  base::remove_tree(temporary);
  base::remove_tree(place + "/tree");  // left by an interrupted try; the manifest ignores it
  try {
    Checkout checkout(cache_, cache_.mirror_directory(repo), commit, deadline, {}, check_room,
                      old_index);
    const BaseTreeInfo info = whole_info(temporary, checkout.write(temporary, origin_url));
    base::rename_into_place(temporary, place + "/tree");
    base::sync_file_system(place);
    whole_written.pass();
    write_manifest(place, commit, info);
    whole_counts.pass();
    return info;
  } catch (const Error& error) {
    base::remove_tree(temporary);
    if (error.code() == Code::corrupted) cache_.mark_suspect(repo);
    throw;
  }
}

bool BaseTrees::has_old_form(const std::string& repo, const std::string& commit) const {
  const std::string place = directory(repo, commit);
  const bool is_delta = !info(repo, commit).parent.empty();
  return base::path_exists(place + (is_delta ? "/tree" : "/delta")) ||
         base::path_exists(place + "/tree.new");
}

void BaseTrees::remove_old_form(const std::string& repo, const std::string& commit) {
  const std::string place = directory(repo, commit);
  const auto guard = writers_.lock(repo + "/" + commit, "remove", Duration(0));
  const bool is_delta = !info(repo, commit).parent.empty();
  base::remove_tree(place + "/tree.new");
  base::remove_tree(place + (is_delta ? "/tree" : "/delta"));
}

void BaseTrees::sync(const std::string& repo, const std::string& commit) const {
  base::sync_file_system(directory(repo, commit));
}

void BaseTrees::remove(const std::string& repo, const std::string& commit) {
  const std::string place = directory(repo, commit);
  const auto guard = writers_.lock(repo + "/" + commit, "remove");
  if (!base::path_exists(place)) return;
  // Rename it first: a half-removed tree must not appear under its name.
  const std::string doomed = place + ".old";
  base::remove_tree(doomed);
  base::rename_into_place(place, doomed);
  base::remove_tree(doomed);
}

void BaseTrees::set_aside(const std::string& repo, const std::string& commit, StoodOn stood_on) {
  const std::string place = directory(repo, commit);
  const auto guard = writers_.lock(repo + "/" + commit, "set aside");
  for (int number = 1; base::path_exists(place); ++number) {
    const std::string aside =
        place + (stood_on == StoodOn::maybe ? kDamaged : kTorn) + std::to_string(number);
    if (!base::path_exists(aside)) base::rename_into_place(place, aside);
  }
}

bool BaseTrees::is_kept(const std::string& leftover) {
  return leftover.find(kDamaged) != std::string::npos;
}

std::vector<std::string> BaseTrees::leftovers(const std::string& repo) const {
  const std::string trees = cache_.directory(repo) + "/trees";
  std::vector<std::string> names = base::list_directory_if_exists(trees);
  std::erase_if(names, [](const std::string& name) {
    const size_t dot = name.find('.');
    return dot != GIT_OID_HEXSZ;
  });
  return names;
}

void BaseTrees::remove_leftover(const std::string& repo, const std::string& name) {
  const std::string commit = name.substr(0, GIT_OID_HEXSZ);
  const auto guard = writers_.lock(repo + "/" + commit, "remove", Duration(0));
  base::remove_tree(cache_.directory(repo) + "/trees/" + name);
}

}  // namespace moorage::repo_cache
