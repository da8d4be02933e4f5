#include "packs/merged/finder.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <deque>

#include "base/error.h"
#include "base/log.h"
#include "base/os/open_beneath.h"
#include "base/parts.h"
#include "layers/change_time.h"
#include "packs/merged/entry_sender.h"
#include "packs/merged/upper_index.h"

namespace moorage::packs {
namespace {

using layers::EntryKind;
using Outcome = SentResult::Outcome;

// An entry sent this soon after its change may have changed again.
constexpr int64_t kSettledNs = 2'000'000'000;
// A longer pass leaves as many changes for the next one, so leave those to the next round.
constexpr std::chrono::seconds kShortPass{2};

char type_letter(mode_t mode) {
  if (S_ISREG(mode)) return 'f';
  if (S_ISDIR(mode)) return 'd';
  return S_ISLNK(mode) ? 'l' : 'o';
}

EntryKind kind_of(mode_t mode) {
  if (S_ISREG(mode)) return EntryKind::file;
  if (S_ISDIR(mode)) return EntryKind::directory;
  return S_ISLNK(mode) ? EntryKind::symlink : EntryKind::other;
}

// Each level of the walk keeps its directories open.
size_t depth_for(size_t descriptors_per_level) {
  constexpr rlim_t kOthers = 200;
  rlimit limit{};
  base::check(getrlimit(RLIMIT_NOFILE, &limit), "get the limit of open files");
  const rlim_t room = limit.rlim_cur > kOthers ? limit.rlim_cur - kOthers : 0;
  return std::min<size_t>(kMaxMergedDepth, room / descriptors_per_level);
}

}  // namespace

class MergedFinder::Round {
 public:
  Round(const FinderOptions& options, SentList& sent, const Pack& pack)
      : options_(options), sent_(sent), sender_(pack, options.check_stopping, found_) {
    size_t most_uppers = 0;
    for (const MergedRoot& root : options.roots) {
      assert(!root.prefix.empty());
      most_uppers = std::max(most_uppers, root.uppers.size());
    }
    max_depth_ = depth_for(most_uppers + 1);
  }

  FoundChanges run() {
    sent_.start_round();
    for (pass_ = 1; pass_ <= std::max(options_.passes, 1U); ++pass_) {
      const uint64_t before = found_.entries + found_.removals;
      const auto begin = std::chrono::steady_clock::now();
      pass();
      if (found_.entries + found_.removals == before) break;
      if (std::chrono::steady_clock::now() - begin > kShortPass) break;
    }
    return found_;
  }

  FoundChanges send_paths(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) send_path(path);
    return found_;
  }

 private:
  struct Directory {
    const MergedRoot& root;
    const UpperIndex* index = nullptr;  // of an overlay
    Directory* above = nullptr;
    std::string name;
    std::string path;
    size_t depth = 0;
    bool forced = false;  // everything in it is sent
    bool sent = false;    // its entry, in this pass
    std::vector<IndexDirectory> uppers = {};
    Fd merged = {};
    bool opened = false;
  };

  // -1: it is gone, or cannot be read.
  int merged(Directory& directory) {
    if (std::exchange(directory.opened, true)) return directory.merged.get();
    if (!directory.above) {
      directory.merged = base::open_directory_beneath(directory.root.merged, "");
      return directory.merged.get();
    }
    const int above = merged(*directory.above);
    if (above < 0) return -1;
    directory.merged = base::try_open_directory_beneath(above, directory.name);
    if (directory.merged || is_gone(errno)) return directory.merged.get();
    if (errno != EACCES && errno != EPERM)
      base::throw_errno("open " + base::escape_for_message(directory.path));
    ++found_.unreadable;
    return -1;
  }

  void pass() {
    sent_.start_pass();
    found_.skipped = found_.unreadable = 0;
    looked_ns_ = layers::kernel_time();
    forced_.clear();
    cleared_.clear();
    std::vector<const MergedRoot*> roots;
    for (const MergedRoot& root : options_.roots) roots.push_back(&root);
    std::sort(roots.begin(), roots.end(), [](const auto* one, const auto* other) {
      return compare_in_walk(one->prefix, other->prefix) < 0;
    });
    for (const MergedRoot* root : roots) walk_root(*root);
    sent_.end_pass();
  }

  void walk_root(const MergedRoot& root) {
    while (sent_.passed_over(root.prefix)) {
    }  // of another root
    const UpperIndex index(root.uppers, options_.marks);
    Directory top{root, root.uppers.empty() ? nullptr : &index, nullptr, "", root.prefix};
    if (top.index != nullptr) top.uppers = index.root();
    IndexedName state;
    const int fd = top.uppers.empty() ? root.merged : top.uppers.front().fd.get();
    base::check(fstat(fd, &state.status), "check " + root.prefix);
    state.kind = EntryKind::directory;
    state.layer = 0;
    const auto known = sent_.arrive(root.prefix);
    send_if_changed(top, merged(top), "", root.prefix, state, known, &top);
    enter(top);
  }

  // --- one directory ---

  void enter(Directory& directory) {
    NameWalk names(names_bytes_);
    for (const auto& upper : directory.uppers) names.add(upper.fd.get());
    if (!directory.index || directory.forced) {
      const int fd = merged(directory);
      if (fd < 0) return;
      names.add(fd);
    }
    while (const auto name = names.next()) {
      if (options_.check_stopping) options_.check_stopping();
      take(directory, *name);
    }
    while (const auto gone = sent_.next_below(directory.path)) vanish(directory, *gone);
  }

  std::optional<IndexedName> look(Directory& directory, const std::string& name) {
    if (directory.index) return directory.index->find(directory.uppers, name);
    IndexedName state;
    if (fstatat(merged(directory), name.c_str(), &state.status, AT_SYMLINK_NOFOLLOW) < 0) {
      if (is_gone(errno) || errno == EACCES) return std::nullopt;
      base::throw_errno("check " + base::escape_for_message(directory.path + "/" + name));
    }
    state.kind = kind_of(state.status.st_mode);
    return state;
  }

  void take(Directory& directory, const std::string& name) {
    const std::string path = directory.path + "/" + name;
    if (options_.wanted && !options_.wanted(path)) return;
    while (const auto gone = sent_.passed_over(path)) vanish(directory, *gone);
    auto known = sent_.arrive(path);
    if (path.size() > kMaxMergedPathBytes) {
      ++found_.skipped;
      return;
    }
    auto state = look(directory, name);
    if (!state) {
      if (directory.forced) return send_lower(directory, name, path);
      if (known) vanish(directory, *known);
      return;
    }
    if (state->kind == EntryKind::absent) return whiteout(directory, path, known);
    if (state->kind == EntryKind::directory)
      return take_directory(directory, name, path, std::move(*state), known);
    other(directory, name, path, *state, known);
  }

  void whiteout(Directory& directory, const std::string& path,
                const std::optional<SentEntry>& known) {
    const LearnedEntry* const learned = sent_.learned(path);
    const bool is_known = (known && known->type == 'w') || (learned && learned->removed);
    if (!directory.forced && !is_known) remove(directory, path);
    cleared_ = path;
    SentEntry entry;
    entry.path = path;
    entry.type = 'w';
    sent_.put(entry);
  }

  void other(Directory& directory, const std::string& name, const std::string& path,
             const IndexedName& state, const std::optional<SentEntry>& known) {
    if (known && known->type == 'd') cleared_ = path;
    const mode_t mode = state.status.st_mode;
    if (S_ISCHR(mode) || S_ISBLK(mode)) {
      ++found_.skipped;
      return;
    }
    send_if_changed(directory, merged_if_needed(directory, state, known), name, path, state, known,
                    nullptr);
  }

  void take_directory(Directory& directory, const std::string& name, const std::string& path,
                      IndexedName state, const std::optional<SentEntry>& known) {
    if (directory.depth + 1 >= max_depth_) {
      ++found_.skipped;
      return;
    }
    const LearnedEntry* const learned = sent_.learned(path);
    const bool was_whole = known && known->whole;
    const bool same = was_whole && state.whole && known->inode == state.status.st_ino;
    const bool fresh = learned && learned->fresh && !was_whole;
    const bool replaced = !directory.forced && (state.whole || was_whole) && !same && !fresh;
    if (replaced) {
      if (!is_there(directory, name)) return;  // the next pass finds what replaced it
      remove(directory, path);
      forced_ = path;
    }
    Directory below{directory.root,
                    directory.index,
                    &directory,
                    name,
                    path,
                    directory.depth + 1,
                    directory.forced || replaced};
    below.uppers = std::move(state.directories);
    const int fd = below.forced ? merged(directory) : merged_if_needed(directory, state, known);
    if (send_if_changed(directory, fd, name, path, state, known, &below)) enter(below);
  }

  // --- one entry ---

  static bool has_settled(const SentEntry& known, int64_t least) {
    return known.looked_ns - known.changed_ns > least;
  }

  bool is_known(const IndexedName& state, const std::optional<SentEntry>& known) const {
    if (!known || known->inode != state.status.st_ino ||
        known->type != type_letter(state.status.st_mode) || known->whole != state.whole ||
        known->changed_ns != layers::nanoseconds(state.status.st_ctim)) {
      return false;
    }
    if (sender_.lost_link(known->path, state.layer, state.status)) return false;
    // An entry seen in this round is in doubt only if change and check have the same clock tick.
    const bool first_pass = pass_ == 1;
    if (first_pass && options_.mapped.contains(state.status.st_ino)) return false;
    return has_settled(*known, first_pass ? kSettledNs : layers::kTickNs);
  }

  // Opening the merged directory of unchanged entries would double the work.
  int merged_if_needed(Directory& directory, const IndexedName& state,
                       const std::optional<SentEntry>& known) {
    return !directory.forced && is_known(state, known) ? -1 : merged(directory);
  }

  SentEntry entry_of(const std::string& path, const IndexedName& state) const {
    SentEntry entry;
    entry.path = path;
    entry.inode = state.status.st_ino;
    entry.changed_ns = layers::nanoseconds(state.status.st_ctim);
    entry.size = static_cast<uint64_t>(state.status.st_size);
    entry.type = type_letter(state.status.st_mode);
    entry.whole = state.whole;
    entry.looked_ns = looked_ns_;
    // Skip it in this round, send it in the next: a mapping made after the check may be gone then.
    const int64_t unsettled_ns = entry.changed_ns + layers::kTickNs + 1;
    if (entry.type == 'f' && options_.mapped.contains(state.status.st_ino)) {
      entry.looked_ns = unsettled_ns;
    } else if (entry.type == 'f' && unsettled_ns > options_.mapped_looked_ns) {
      entry.looked_ns = std::min(entry.looked_ns, unsettled_ns);
    }
    return entry;
  }

  // The digest that may prove that nothing changed. Names of one file are sent together, so one
  // that got a new name is sent in any case.
  std::string digest_to_compare(const std::string& path, const IndexedName& state,
                                const std::optional<SentEntry>& known) const {
    const bool linked = !S_ISDIR(state.status.st_mode) && state.status.st_nlink > 1;
    const LearnedEntry* const learned = linked ? nullptr : sent_.learned(path);
    if (learned) return learned->digest;
    if (!known || known->type != type_letter(state.status.st_mode)) return {};
    if (linked && known->changed_ns != layers::nanoseconds(state.status.st_ctim)) return {};
    if (linked && sender_.lost_link(path, state.layer, state.status)) return {};
    return known->digest;
  }

  // `in`: the merged directory. False: the entry is gone or cannot be sent. `itself`: the directory
  // that this entry is.
  bool send_if_changed(Directory& directory, int in, const std::string& name,
                       const std::string& path, const IndexedName& state,
                       const std::optional<SentEntry>& known, Directory* itself) {
    const bool forced = directory.forced || (itself != nullptr && itself->forced);
    if (!forced && is_known(state, known)) {
      sent_.put(*known);
      return true;
    }
    SentEntry entry = entry_of(path, state);
    EntrySource source{in, name, path, directory.root.owners};
    source.layer = state.layer;
    source.status = state.status;
    source.wants_digest = !has_settled(entry, kSettledNs);
    source.forced = forced;
    source.known_digest = forced ? "" : digest_to_compare(path, state, known);
    source.muted = has_arrived(path);
    const SentResult result = send(directory, source, itself);
    if (result.outcome == Outcome::gone && known && !forced) vanish(directory, *known);
    if (result.outcome == Outcome::gone || result.outcome == Outcome::skipped) return false;
    if (source.wants_digest) entry.digest = result.digest;
    if (result.unsure_link) entry.changed_ns = 0;  // send all names again
    sent_.put(entry);
    return true;
  }

  // Directories that were being filled are sent again: their times were not set yet.
  bool has_arrived(const std::string& path) const {
    return !options_.after.empty() && compare_in_walk(path, options_.after) < 0 &&
           !is_below(options_.after, path);
  }

  SentResult send(Directory& directory, const EntrySource& source, Directory* itself) {
    if (source.directory < 0) return {};
    const bool is_root = itself == &directory;
    SentResult result = sender_.send(source, [&] { is_root ? void() : send_above(directory); });
    if (itself && !source.muted) itself->sent = result.outcome == Outcome::sent;
    return result;
  }

  // A change in a directory follows its entry, and those of the directories above.
  void send_above(Directory& directory) {
    if (std::exchange(directory.sent, true)) return;
    if (directory.above) send_above(*directory.above);
    EntrySource source{merged(directory), "", directory.path, directory.root.owners};
    source.status.st_mode = S_IFDIR;
    if (source.directory >= 0) sender_.send(source, [] {});
  }

  void remove(Directory& directory, const std::string& path) {
    if (has_arrived(path)) return;
    send_above(directory);
    sender_.removal(path);
  }

  bool is_there(Directory& directory, const std::string& name, struct stat* status = nullptr) {
    struct stat unused {};
    const int fd = merged(directory);
    return fd >= 0 &&
           fstatat(fd, name.c_str(), status ? status : &unused, AT_SYMLINK_NOFOLLOW) == 0;
  }

  // A recorded entry that the walk did not meet. The merged directory knows what is there now.
  void vanish(Directory& directory, const SentEntry& gone) {
    if (directory.forced || is_below(gone.path, forced_) || is_below(gone.path, cleared_)) return;
    const bool here = is_below(gone.path, directory.path);
    const std::string name = here ? gone.path.substr(directory.path.size() + 1) : "";
    const bool deep = name.find('/') != std::string::npos;  // its directory could not be read
    // One that was made may need no node of its own.
    if (gone.learned && (!here || deep || is_there(directory, name))) return;
    cleared_ = gone.path;
    if (!here || deep) return;
    if (options_.wanted && !options_.wanted(gone.path)) return;
    const bool there = directory.index && is_there(directory, name);
    const LearnedEntry* const learned = sent_.learned(gone.path);
    if (!there && (gone.type == 'w' || (learned && learned->removed))) return;
    remove(directory, gone.path);
    if (there) send_lower(directory, name, gone.path);
  }

  // Sends an entry of the merged directory that no upper directory has, and everything below it. It
  // is not recorded: it cannot change without a node in an upper directory.
  void send_lower(Directory& directory, const std::string& name, const std::string& path) {
    struct stat status {};
    if (!is_there(directory, name, &status)) return;
    const bool too_far = path.size() > kMaxMergedPathBytes || directory.depth + 1 >= max_depth_;
    if (too_far || S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) {
      ++found_.skipped;
      return;
    }
    Directory below{directory.root, nullptr, &directory, name, path, directory.depth + 1, true};
    EntrySource source{merged(directory), name, path, directory.root.owners};
    source.status = status;
    source.muted = has_arrived(path);
    const SentResult result = send(directory, source, &below);
    if (result.outcome == Outcome::sent && S_ISDIR(status.st_mode)) enter_lower(below);
  }

  void enter_lower(Directory& directory) {
    const int fd = merged(directory);
    if (fd < 0) return;
    NameWalk names(names_bytes_);
    names.add(fd);
    while (const auto name = names.next()) {
      if (options_.check_stopping) options_.check_stopping();
      const std::string path = directory.path + "/" + *name;
      if (!options_.wanted || options_.wanted(path)) send_lower(directory, *name, path);
    }
  }

  // --- single paths ---

  void send_path(const std::string& path) {
    std::string_view rest = path;
    const std::string_view prefix = base::take_until(rest, '/');
    const auto root =
        std::find_if(options_.roots.begin(), options_.roots.end(),
                     [prefix](const MergedRoot& one) { return one.prefix == prefix; });
    if (root == options_.roots.end())
      throw Error(Code::invalid_argument, base::escape_for_message(path) + " is in no directory");
    std::deque<Directory> above;
    above.push_back({*root, nullptr, nullptr, "", root->prefix});
    if (rest.empty()) return send_above(above.back());
    while (true) {
      const std::string name(base::take_until(rest, '/'));
      Directory& directory = above.back();
      const std::string here = directory.path + "/" + name;
      if (!is_there(directory, name)) return remove(directory, here);
      if (rest.empty()) return send_lower(directory, name, here);
      above.push_back({*root, nullptr, &directory, name, here, directory.depth + 1});
    }
  }

  const FinderOptions& options_;
  SentList& sent_;
  FoundChanges found_;
  EntrySender sender_;
  size_t max_depth_ = 0;
  unsigned pass_ = 0;
  int64_t looked_ns_ = 0;     // when this pass began
  uint64_t names_bytes_ = 0;  // for the directories on the walk's path
  std::string forced_;        // the last directory sent with all its contents
  std::string cleared_;       // the last path with nothing below it
};

MergedFinder::MergedFinder(const FinderOptions& options, SentList& sent)
    : options_(options), sent_(sent) {}

FoundChanges MergedFinder::find(const Pack& pack) { return Round(options_, sent_, pack).run(); }

FoundChanges MergedFinder::find_paths(const std::vector<std::string>& paths, const Pack& pack) {
  return Round(options_, sent_, pack).send_paths(paths);
}

}  // namespace moorage::packs
