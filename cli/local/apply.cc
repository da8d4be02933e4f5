#include "cli/local/apply.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <set>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "base/size_text.h"
#include "cli/local/git_calls.h"
#include "cli/local/swap.h"

namespace moorage::cli {
namespace {

constexpr uint32_t kLink = 0120000;
constexpr uint32_t kExecutable = 0100755;
constexpr uint32_t kSubmodule = 0160000;
constexpr size_t kMostListed = 20;
constexpr size_t kPiece = 64 << 10;

// What the caller has at a path.
struct Mine {
  enum class Kind { absent, file, link, other } kind = Kind::absent;
  struct stat status {};
  std::string trouble;  // why nothing can be put there
};

bool is_file(uint32_t mode) { return mode != 0 && mode != kLink && mode != kSubmodule; }

bool same_bytes(int one, int other) {
  for (uint64_t at = 0;; at += kPiece) {
    const std::string left = base::read_at(one, kPiece, at);
    if (left != base::read_at(other, kPiece, at)) return false;
    if (left.size() < kPiece) return true;
  }
}

class Planner {
 public:
  Planner(Swap& swap, const std::vector<AgentChange>& changes, const AgentContents& contents)
      : swap_(swap), contents_(contents) {
    for (const AgentChange& change : changes) {
      if (change.after == 0) removed_.insert(change.path);
    }
    for (const AgentChange& change : changes) plan(change);
  }

  const std::vector<Swap::Step>& steps() const { return steps_; }
  const std::vector<std::string>& conflicts() const { return conflicts_; }
  const Applied& applied() const { return applied_; }

 private:
  void conflict(const AgentChange& change, const std::string& reason) {
    conflicts_.push_back(base::escape_for_message(change.path) + ": " + reason);
  }

  Mine look(const std::string& path) const {
    Mine mine;
    const size_t slash = path.rfind('/');
    const std::string parent = slash == std::string::npos ? "" : path.substr(0, slash);
    const base::Fd directory = base::try_open_directory_beneath(swap_.directory(), parent);
    if (!directory) {
      const bool replaced = errno == ENOTDIR || errno == ELOOP;
      if (errno == ENOENT || (replaced && (removed_.contains(path) || below_removed(path))))
        return mine;
      mine.trouble = replaced         ? "its directory is a file or a link here"
                     : errno == EXDEV ? "its directory is on another file system"
                                      : "its directory cannot be opened here";
      return mine;
    }
    const std::string name = path.substr(slash + 1);  // npos + 1 is 0
    if (::fstatat(directory.get(), name.c_str(), &mine.status, AT_SYMLINK_NOFOLLOW) != 0)
      return mine;
    mine.kind = S_ISREG(mine.status.st_mode)   ? Mine::Kind::file
                : S_ISLNK(mine.status.st_mode) ? Mine::Kind::link
                                               : Mine::Kind::other;
    if (S_ISDIR(mine.status.st_mode) && has_removed_below(path)) {  // they are removed first
      const std::string rest = stays_in(path);
      if (rest.empty())
        mine.kind = Mine::Kind::absent;
      else
        mine.trouble = "is a directory here with " + base::escape_for_message(rest) +
                       ", which the workspace does not have";
      return mine;
    }
    if (mine.kind == Mine::Kind::other) mine.trouble = "is neither a file nor a link here";
    return mine;
  }

  // The first entry of a directory that is there after all removals, by its path; empty: none is.
  std::string stays_in(const std::string& path) const {
    const base::Fd directory = base::open_directory_beneath(swap_.directory(), path);
    for (const std::string& name : base::list_directory(directory.get())) {
      const std::string below = path + "/" + name;
      if (removed_.contains(below)) continue;
      std::string rest = has_removed_below(below) ? stays_in(below) : below;
      if (!rest.empty()) return rest;
    }
    return {};
  }

  bool below_removed(const std::string& path) const {
    for (size_t slash = path.find('/'); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
      if (removed_.contains(path.substr(0, slash))) return true;
    }
    return false;
  }

  bool has_removed_below(const std::string& path) const {
    const auto next = removed_.lower_bound(path + "/");
    return next != removed_.end() && next->starts_with(path + "/");
  }

  std::string target_of(const std::string& path) const {
    std::string target(PATH_MAX, '\0');
    const base::Fd link = base::open_beneath(swap_.directory(), path, O_PATH | O_NOFOLLOW);
    const ssize_t size =
        base::check(::readlinkat(link.get(), "", target.data(), target.size()), "read " + path);
    target.resize(static_cast<size_t>(size));
    return target;
  }

  // A copy of what the workspace has, in the waiting directory.
  base::Fd copy(const std::string& name, const std::function<void(const ContentSink&)>& read) {
    const base::Fd file = base::open_file(swap_.place(name), O_RDWR | O_CREAT | O_EXCL, 0600);
    read([&](std::string_view bytes) { base::write_all(file.get(), bytes); });
    return base::open_file(swap_.place(name), O_RDONLY);
  }

  std::string text(const std::function<void(const ContentSink&)>& read) const {
    std::string bytes;
    read([&](std::string_view piece) { bytes += piece; });
    return bytes;
  }

  void plan(const AgentChange& change) {
    if (change.before == kSubmodule || change.after == kSubmodule)
      return conflict(change, "is a submodule");
    const Mine mine = look(change.path);
    if (!mine.trouble.empty()) return conflict(change, mine.trouble);
    number_ = std::to_string(steps_.size() + applied_.present + conflicts_.size());
    const auto base = [&](const ContentSink& sink) { contents_.before(change.path, sink); };
    const auto now = [&](const ContentSink& sink) { contents_.after(change, sink); };
    if (change.after == 0) return plan_removal(change, mine, base);
    if (change.after == kLink) return plan_link(change, mine, text(now), base);
    plan_file(change, mine, base, now);
  }

  using Read = std::function<void(const ContentSink&)>;

  // Whether the caller's has not changed since the workspace was created.
  bool is_base(const AgentChange& change, const Mine& mine, const Read& base) {
    if (change.before == 0) return mine.kind == Mine::Kind::absent;
    if (change.before == kLink)
      return mine.kind == Mine::Kind::link && target_of(change.path) == text(base);
    if (mine.kind != Mine::Kind::file) return false;
    const base::Fd was = copy("base." + number_, base);
    return same_bytes(was.get(), open(change.path).get());
  }

  base::Fd open(const std::string& path) const {
    return base::open_regular_beneath(swap_.directory(), path, O_RDONLY);
  }

  void plan_removal(const AgentChange& change, const Mine& mine, const Read& base) {
    if (mine.kind == Mine::Kind::absent) return void(++applied_.present);
    if (!is_base(change, mine, base))
      return conflict(change, "changed here, removed in the workspace");
    steps_.push_back({change.path, "", mine.status});
    ++applied_.taken;
  }

  void plan_link(const AgentChange& change, const Mine& mine, const std::string& target,
                 const Read& base) {
    if (mine.kind == Mine::Kind::link && target_of(change.path) == target)
      return void(++applied_.present);
    if (!is_base(change, mine, base)) return conflict(change, reason(change, mine));
    const std::string name = "new." + number_;
    base::check(::symlink(target.c_str(), swap_.place(name).c_str()),
                "create a link to " + base::escape_for_message(target));
    take(change, mine, name);
  }

  void plan_file(const AgentChange& change, const Mine& mine, const Read& base, const Read& now) {
    const std::string name = "new." + number_;
    const base::Fd wanted = copy(name, now);
    const bool same =
        mine.kind == Mine::Kind::file && same_bytes(wanted.get(), open(change.path).get());
    const uint32_t mode = mode_of(change, mine);
    if (same && (mine.status.st_mode & 0111) == (mode & 0111)) return void(++applied_.present);
    base::check(::fchmod(wanted.get(), mode), "set the mode of a file");
    if (same || is_base(change, mine, base)) return take(change, mine, name);
    const bool text = mine.kind == Mine::Kind::file && is_file(change.before);
    if (!text || !merge(change, name)) return conflict(change, reason(change, mine));
    base::check(::chmod(swap_.place(name).c_str(), mode), "set the mode of a file");
    steps_.push_back({change.path, name, mine.status});
    ++applied_.merged;
  }

  // The caller's permissions; whether it can be run is the agent's if he changed that.
  static uint32_t mode_of(const AgentChange& change, const Mine& mine) {
    const bool is_mine = mine.kind == Mine::Kind::file;
    const uint32_t usual = is_mine ? mine.status.st_mode & 0777 : 0666 & ~current_umask();
    const bool agents = !is_mine || change.before != change.after;
    const bool runs = agents ? change.after == kExecutable : (usual & 0100) != 0;
    const uint32_t readable = (usual & 0444) >> 2;  // as git does: who can read it can run it
    return runs ? usual | readable : usual & ~0111u;
  }

  static uint32_t current_umask() {
    const mode_t mask = ::umask(0);
    ::umask(mask);
    return mask;
  }

  static std::string reason(const AgentChange& change, const Mine& mine) {
    if (change.before == 0) return "exists here with other contents";
    if (mine.kind == Mine::Kind::absent) return "removed here, changed in the workspace";
    return "changed here and in the workspace";
  }

  // Writes the merged text to the waiting file. False: it cannot be merged.
  bool merge(const AgentChange& change, const std::string& name) {
    const base::Fd mine = open(change.path);
    copy("mine." + number_, [&](const ContentSink& sink) {
      for (uint64_t at = 0;; at += kPiece) {
        const std::string piece = base::read_at(mine.get(), kPiece, at);
        sink(piece);
        if (piece.size() < kPiece) return;
      }
    });
    const auto merged = try_git({"merge-file", "-p", "-q", swap_.place("mine." + number_),
                                 swap_.place("base." + number_), swap_.place(name)},
                                {swap_.place("."), {}, {}});
    if (!merged.ok()) return false;
    base::write_file(swap_.place(name), merged.output);
    return true;
  }

  void take(const AgentChange& change, const Mine& mine, const std::string& name) {
    std::optional<struct stat> expected;
    if (mine.kind != Mine::Kind::absent) expected = mine.status;
    steps_.push_back({change.path, name, expected});
    ++applied_.taken;
  }

  Swap& swap_;
  const AgentContents& contents_;
  std::set<std::string> removed_;
  std::string number_;  // of the present change, in names of waiting files
  std::vector<Swap::Step> steps_;
  std::vector<std::string> conflicts_;
  Applied applied_;
};

[[noreturn]] void throw_conflicts(const std::vector<std::string>& conflicts) {
  std::string text = base::count_text(conflicts.size(), "file") + " " +
                     base::verb_text(conflicts.size(), "conflict") + "; nothing was changed";
  for (size_t n = 0; n < std::min(kMostListed, conflicts.size()); ++n)
    text += "\n  " + conflicts[n];
  if (conflicts.size() > kMostListed)
    text += "\n  and " + std::to_string(conflicts.size() - kMostListed) + " more";
  throw Error(Code::conflict, text);
}

}  // namespace

Applied apply_changes(const std::string& directory, const std::string& plans,
                      const std::vector<AgentChange>& changes, const AgentContents& contents,
                      bool only_check) {
  Swap swap(directory, plans);
  const Planner planner(swap, changes, contents);
  if (!planner.conflicts().empty()) throw_conflicts(planner.conflicts());
  if (!only_check) swap.commit(planner.steps());
  return planner.applied();
}

}  // namespace moorage::cli
