// Finding a broken mirror, and rebuilding it. See mirror.h for the marks.
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/clock.h"
#include "base/crash_point.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/files.h"
#include "base/parts.h"
#include "repo_cache/git_handles.h"
#include "repo_cache/mirror.h"

namespace moorage::repo_cache {

namespace {

namespace fs = std::filesystem;

MOORAGE_CRASH_POINT(rebuild_cloned, "repo.rebuild.cloned");

// A pack ends with its checksum; its index repeats that before its own. This finds a truncated pack
// or a missing file without reading the objects.
void check_pack(const fs::path& index) {
  constexpr size_t kHashBytes = 20;
  fs::path pack = index;
  pack.replace_extension(".pack");
  const Fd index_fd = base::open_file(index, O_RDONLY);
  const Fd pack_fd = base::open_file(pack, O_RDONLY);
  struct stat index_stat {};
  struct stat pack_stat {};
  base::check(fstat(index_fd.get(), &index_stat), "inspect a pack index");
  base::check(fstat(pack_fd.get(), &pack_stat), "inspect a pack");
  const auto tail = [](int fd, off_t size, size_t back) {
    const off_t from = size - static_cast<off_t>(back);
    return from < 0 ? std::string() : base::read_at(fd, kHashBytes, static_cast<uint64_t>(from));
  };
  const std::string wanted = tail(index_fd.get(), index_stat.st_size, 2 * kHashBytes);
  if (wanted.size() != kHashBytes || wanted != tail(pack_fd.get(), pack_stat.st_size, kHashBytes)) {
    throw Error(Code::corrupted, "a pack does not match its index: " + pack.filename().string());
  }
}

// A power cut leaves empty files, which libgit2's iterator skips silently.
void check_loose_references(const fs::path& directory) {
  for (const auto& entry : fs::recursive_directory_iterator(directory)) {
    if (!entry.is_regular_file() || entry.path().extension() == ".lock") continue;
    const std::string text = base::read_file(entry.path(), 4096);
    const bool good = text.starts_with("ref: refs/") ||
                      (text.size() >= GIT_OID_HEXSZ &&
                       text.find_first_not_of("0123456789abcdef") >= GIT_OID_HEXSZ);
    if (!good) throw Error(Code::corrupted, "invalid git reference: " + entry.path().string());
  }
}

void check_references(git_repository* repository) {
  const GitOdb odb = open_odb(repository);
  for_each_reference(repository, [&](const git_reference* reference, const git_oid& oid) {
    if (!git_odb_exists(odb.get(), &oid)) {
      throw Error(Code::corrupted,
                  std::string(git_reference_name(reference)) + " points at a missing object");
    }
  });
}

bool stray(const fs::path& path) {
  const std::string name = path.filename().string();
  return path.extension() == ".lock" || name.starts_with("tmp_") || name.starts_with("incoming-");
}

}  // namespace

void Mirror::quick_check() const {
  try {
    const GitRepository repository = open_mirror(git_directory_);
    for (const auto& entry : fs::directory_iterator(git_directory_ + "/objects/pack")) {
      if (entry.path().extension() == ".idx") check_pack(entry.path());
    }
    check_loose_references(git_directory_ + "/refs");
    check_references(repository.get());
  } catch (const Error& error) {
    if (error.code() == Code::resource_exhausted) throw;
    throw Error(Code::corrupted, "broken mirror: " + error.message());
  } catch (const fs::filesystem_error& error) {
    throw Error(Code::corrupted, std::string("broken mirror: ") + error.what());
  }
}

void Mirror::fsck(const std::vector<std::string>& options, const Deadline& deadline) const {
  std::vector<std::string> arguments = {"fsck", "--no-dangling", "--no-reflogs", "--no-progress"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  const base::ProcessResult result =
      git_.try_run(arguments, deadline, {.directory = git_directory_});
  if (result.ok()) return;
  throw Error(Code::corrupted, "broken mirror: " + git_failure(result, "verify it").message());
}

void Mirror::remove_leftovers() const {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(git_directory_)) {
    if (stray(entry.path())) found.push_back(entry.path());
  }
  for (const char* below : {"/refs", "/objects"}) {
    for (const auto& entry : fs::recursive_directory_iterator(git_directory_ + below)) {
      if (stray(entry.path())) found.push_back(entry.path());
    }
  }
  for (const auto& path : found) base::remove_tree(path);
}

void Mirror::recover(const Deadline& deadline) const {
  const std::string fetching = directory_ + "/fetching";
  if (base::path_exists(fetching)) {
    base::log(base::LogLevel::info, "repo.recovering", {{"directory", directory_}});
    try {
      remove_leftovers();
    } catch (const fs::filesystem_error& error) {
      throw Error(Code::corrupted, std::string("broken mirror: ") + error.what());
    }
    fsck({"--connectivity-only"}, deadline);  // every object exists
    remove(fetching.c_str());
  }
  if (base::path_exists(directory_ + "/suspect")) {
    full_check(deadline);
    remove((directory_ + "/suspect").c_str());
  }
  quick_check();
}

void Mirror::rebuild(const FetchTask& task, const UpstreamRefs& upstream) const {
  try {
    make_new_clone(task, upstream);
    carry_over_kept_refs(task);
  } catch (const Error&) {
    base::remove_tree(new_directory_);
    throw;
  }
  base::sync_file_system(new_directory_);
  rebuild_cloned.pass();
  base::remove_tree(broken_directory_);
  // One atomic step, for concurrent readers of the mirror.
  base::check(renameat2(AT_FDCWD, new_directory_.c_str(), AT_FDCWD, git_directory_.c_str(),
                        RENAME_EXCHANGE),
              "put the new mirror in place");
  base::rename_into_place(new_directory_, broken_directory_);
  base::sync_directory(directory_);
  remove((directory_ + "/fetching").c_str());
  remove((directory_ + "/suspect").c_str());
}

// Objects that upstream dropped exist only in the broken mirror: fetches each kept tip separately,
// and reports those that are lost as unreadable.
void Mirror::carry_over_kept_refs(const FetchTask& task) const {
  constexpr size_t kMaxTries = 200;
  std::vector<std::string> refs;
  const base::ProcessResult listed =
      git_.try_run({"for-each-ref", "--format=%(refname)", "refs/keep/", "refs/moorage/"},
                   task.deadline, {.directory = git_directory_});
  for (std::string_view rest = listed.output; listed.ok() && !rest.empty();)
    refs.emplace_back(base::take_until(rest, '\n'));
  const GitRun run{.directory = new_directory_, .inherit_fds = {task.lock.fd()}};
  const auto take = [&](std::vector<std::string> wanted) {
    for (std::string& ref : wanted) ref = std::string("+").append(ref).append(":").append(ref);
    return git_.try_fetch_file(git_directory_, wanted, task.deadline, run).ok();
  };
  if (refs.empty() || (refs.size() <= kMaxTries && take(refs))) return;
  for (size_t i = 0; i < refs.size(); ++i) {
    if (i < kMaxTries && take({refs[i]})) continue;
    base::log(base::LogLevel::error, "repo.kept_ref_lost",
              {{"directory", directory_}, {"ref", refs[i]}});
  }
}

void Mirror::record_checked() const {
  base::write_file(directory_ + "/checked", std::to_string(base::system_clock().wall_ms()));
}

int64_t Mirror::checked_wall_ms() const {
  const auto text = base::read_file_if_exists(directory_ + "/checked", 64);
  return text ? atoll(text->c_str()) : 0;
}

}  // namespace moorage::repo_cache
