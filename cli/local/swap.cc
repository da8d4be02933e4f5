#include "cli/local/swap.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"
#include "cli/local/git_calls.h"

namespace moorage::cli {
namespace {

constexpr std::string_view kWaiting = ".moorage-apply-";
// Records of a plan: the name of the waiting directory; then for each step the name of its waiting
// file, or nothing, and its path. Without steps everything is in place.
constexpr size_t kFirstStep = 1;
constexpr uint64_t kMostPlan = 256 << 20;

std::string parent_path(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "" : path.substr(0, slash);
}

std::string last_part(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string old_name(size_t number) { return "old." + std::to_string(number); }

bool exists_at(int directory, const std::string& name) {
  return ::faccessat(directory, name.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

bool is_same(const struct stat& one, const struct stat& other) {
  return one.st_ino == other.st_ino && one.st_size == other.st_size &&
         one.st_mtim.tv_sec == other.st_mtim.tv_sec && one.st_mtim.tv_nsec == other.st_mtim.tv_nsec;
}

[[noreturn]] void throw_changed(const std::string& path) {
  throw Error(Code::conflict, base::escape_for_message(path) + " changed meanwhile",
              "nothing was changed; try again");
}

// The same for every name of a directory.
std::string plan_of(const std::string& plans, int directory) {
  struct stat status {};
  base::check(::fstat(directory, &status), "inspect a directory");
  return plans + "/" + std::to_string(status.st_dev) + "-" + std::to_string(status.st_ino);
}

}  // namespace

Swap::Swap(const std::string& directory, const std::string& plans)
    : path_(directory),
      directory_(base::open_directory(directory)),
      plan_(plan_of(plans, directory_.get())) {
  base::make_directories(plans);
  undo_left();
  waiting_path_ = path_ + "/" + std::string(kWaiting) + "XXXXXX";
  if (::mkdtemp(waiting_path_.data()) == nullptr)
    base::throw_errno("create a directory in " + path_);
  waiting_name_ = last_part(waiting_path_);
  base::write_file(plan_, without_steps());
  waiting_ = base::open_directory_beneath(directory_.get(), waiting_name_);
}

Swap::~Swap() {
  try {
    if (!written_.empty()) undo(waiting_.get(), records(written_));
    finish();
  } catch (const Error&) {
    // The next call finds the plan and undoes it.
  }
}

std::string Swap::without_steps() const { return waiting_name_ + std::string(1, '\0'); }

// In this order: without its plan nobody would find the directory.
void Swap::finish() const {
  base::remove_tree_at(directory_.get(), waiting_name_);
  ::unlink(plan_.c_str());
}

void Swap::undo_left() const {
  const auto text = base::read_file_if_exists(plan_, kMostPlan);
  if (!text) return;
  const auto plan = records(*text);
  const std::string name(plan.empty() ? "" : plan.front());
  const bool ours = name.starts_with(kWaiting) && name.find('/') == std::string::npos;
  const base::Fd left =
      ours ? base::try_open_directory_beneath(directory_.get(), name) : base::Fd();
  if (left) {
    undo(left.get(), plan);
    base::remove_tree_at(directory_.get(), name);
  }
  ::unlink(plan_.c_str());
}

base::Fd Swap::parent_of(const std::string& path, bool make) const {
  const std::string parent = parent_path(path);
  base::Fd found = base::try_open_directory_beneath(directory_.get(), parent);
  if (found || !make || errno != ENOENT) return found;
  const base::Fd above = parent_of(parent, true);
  if (!above) return {};
  if (::mkdirat(above.get(), last_part(parent).c_str(), 0777) != 0 && errno != EEXIST) return {};
  return base::try_open_directory_beneath(directory_.get(), parent);
}

void Swap::commit(const std::vector<Step>& steps) {
  std::string plan = without_steps();
  for (const Step& step : steps) {
    plan.append(step.waiting).push_back('\0');
    plan.append(step.path).push_back('\0');
  }
  base::write_file(plan_, plan);
  written_ = std::move(plan);
  try {
    move(steps);
  } catch (Error& error) {
    undo(waiting_.get(), records(written_));
    base::write_file(plan_, without_steps());
    written_.clear();
    if (error.code() == Code::conflict) throw;
    throw Error(error.code(), error.message(),
                "nothing was changed" + (error.hint().empty() ? "" : "; " + error.hint()));
  }
  base::write_file(plan_, without_steps());
  written_.clear();
}

void Swap::move(const std::vector<Step>& steps) {
  // Removals first: a directory may take the place of a file, and the other way round.
  for (size_t n = 0; n < steps.size(); ++n) remove(steps[n], n);
  for (const Step& step : steps) {
    if (step.waiting.empty()) remove_empty_parents(step.path);
  }
  for (const Step& step : steps) put(step);
}

void Swap::remove(const Step& step, size_t number) {
  if (!step.expected) return;
  const base::Fd parent = parent_of(step.path, false);
  const std::string name = last_part(step.path);
  struct stat found {};
  if (!parent || ::fstatat(parent.get(), name.c_str(), &found, AT_SYMLINK_NOFOLLOW) != 0 ||
      !is_same(found, *step.expected)) {
    throw_changed(step.path);
  }
  base::check(::renameat(parent.get(), name.c_str(), waiting_.get(), old_name(number).c_str()),
              "move " + base::escape_for_message(step.path));
}

void Swap::put(const Step& step) {
  if (step.waiting.empty()) return;
  const base::Fd parent = parent_of(step.path, true);
  if (!parent) base::throw_errno("create " + base::escape_for_message(parent_path(step.path)));
  const int moved = ::renameat2(waiting_.get(), step.waiting.c_str(), parent.get(),
                                last_part(step.path).c_str(), RENAME_NOREPLACE);
  if (moved != 0 && errno == EEXIST) throw_changed(step.path);
  base::check(moved, "create " + base::escape_for_message(step.path));
}

void Swap::remove_empty_parents(const std::string& path) const {
  for (std::string at = parent_path(path); !at.empty(); at = parent_path(at)) {
    const base::Fd above = parent_of(at, false);
    if (!above || ::unlinkat(above.get(), last_part(at).c_str(), AT_REMOVEDIR) != 0) return;
  }
}

// A file that waits no more was put in its place, and an old one was taken from it.
void Swap::undo(int waiting, const std::vector<std::string_view>& plan) const {
  for (size_t n = kFirstStep; n + 1 < plan.size(); n += 2) {
    const std::string name(plan[n]);
    const std::string path(plan[n + 1]);
    if (name.empty() || exists_at(waiting, name)) continue;
    const base::Fd parent = parent_of(path, false);
    if (parent) ::unlinkat(parent.get(), last_part(path).c_str(), 0);
    remove_empty_parents(path);
  }
  for (size_t n = kFirstStep; n + 1 < plan.size(); n += 2) {
    const std::string path(plan[n + 1]);
    const std::string old = old_name((n - kFirstStep) / 2);
    if (!exists_at(waiting, old)) continue;
    const base::Fd parent = parent_of(path, true);
    if (!parent) base::throw_errno("put back " + base::escape_for_message(path));
    base::check(::renameat(waiting, old.c_str(), parent.get(), last_part(path).c_str()),
                "put back " + base::escape_for_message(path));
  }
}

}  // namespace moorage::cli
