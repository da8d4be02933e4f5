#include "repo_cache/blob_writer.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>

#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/os/fd.h"
#include "repo_cache/formats/lfs_pointer.h"
#include "repo_cache/formats/worktree_filter.h"
#include "repo_cache/tree_diff.h"

namespace moorage::repo_cache {

namespace {

constexpr uint64_t kMaxAttributeBytes = 128 << 20;  // the rules of one commit, in memory
constexpr size_t kMaxBlobBytes = 2ull << 30;
constexpr size_t kMaxReadBytes = 64 << 20;  // of a blob, into memory
constexpr Duration kLargeDeadline{600'000};
constexpr uint32_t kYear1980 = 315'532'800;

[[noreturn]] void throw_create_error(const ListedFile& file, int error_number) {
  const std::string path = "\"" + base::escape_for_message(file.path) + "\"";
  // In a directory that we made, names collide only if the tree has one twice, as file and as
  // directory.
  if (error_number == EEXIST) {
    throw Error(Code::invalid_argument, "the repository has two entries of the same name: " + path,
                "the commit is broken or hostile; choose another one");
  }
  base::throw_errno("create " + path, error_number);
}

[[noreturn]] void throw_large_attributes() {
  throw Error(Code::resource_exhausted, "the .gitattributes files of this commit are too large");
}

// The content of a file that nobody else changes.
class Mapping {
 public:
  Mapping(int fd, size_t size)
      : size_(size), data_(mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0)) {
    if (data_ == MAP_FAILED) base::throw_errno("read a large file");
  }
  ~Mapping() { munmap(data_, size_); }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::string_view bytes() const { return {static_cast<const char*>(data_), size_}; }

 private:
  const size_t size_;
  void* const data_;
};

std::string shown(const ListedFile& file) {
  return "\"" + base::escape_for_message(file.path) + "\"";
}

}  // namespace

Attributes read_attributes(git_repository* repository, const TreeListing& listing,
                           uint64_t most_steps) {
  Attributes attributes;
  attributes.set_most_steps(most_steps);
  uint64_t total = 0;
  GitOdb odb;
  for (const ListedFile& file : listing.files) {
    if (std::string_view(file.name()) != ".gitattributes" || file.mode == kModeSubmodule) continue;
    if (!odb) odb = open_odb(repository);
    size_t size = 0;
    git_object_t type = GIT_OBJECT_INVALID;
    check_git_object(git_odb_read_header(&size, &type, odb.get(), &file.oid), "read " + file.path);
    if (size > kMaxAttributeBytes - std::min(total, kMaxAttributeBytes)) throw_large_attributes();
    const GitOdbObject object = read_object(odb.get(), file.oid, "read " + file.path);
    total += Attributes::memory_bytes(content_of(object));
    if (total > kMaxAttributeBytes) throw_large_attributes();
    attributes.add(file.directory(), content_of(object));
  }
  return attributes;
}

BlobWriter::BlobWriter(const RepoCacheOptions& options, const std::string& git_directory,
                       const Attributes& attributes, uint32_t mtime_s)
    : options_(options),
      git_directory_(git_directory),
      repository_(open_mirror(git_directory)),
      odb_(open_odb(repository_.get())),
      attributes_(attributes),
      mtime_s_(mtime_s) {}

size_t BlobWriter::size_of(const ListedFile& file) {
  size_t size = 0;
  git_object_t type = GIT_OBJECT_INVALID;
  const int answer = git_odb_read_header(&size, &type, odb_.get(), &file.oid);
  if (answer < 0) check_git_object(answer, "read " + shown(file));
  if (type != GIT_OBJECT_BLOB) throw Error(Code::corrupted, shown(file) + " is not a blob");
  if (size > kMaxBlobBytes) {
    throw Error(Code::resource_exhausted,
                shown(file) + " is larger than 2 GiB, which is not supported in a repository",
                "ignore it in .gitignore, and copy it into the workspace: moorage cp");
  }
  return size;
}

GitOdbObject BlobWriter::read(const ListedFile& file) {
  if (size_of(file) > kMaxReadBytes)
    throw Error(Code::resource_exhausted, shown(file) + " is a symlink of more than 64 MiB");
  git_odb_object* raw = nullptr;
  const int answer = git_odb_read(&raw, odb_.get(), &file.oid);
  if (answer < 0) check_git_object(answer, "read " + shown(file));
  return GitOdbObject(raw);
}

// In a process of its own, which a hostile delta may fill: the daemon's memory stays small. One at
// a time. A file that would then have to be converted is refused.
uint64_t BlobWriter::write_large(int fd, const ListedFile& file, size_t size,
                                 const Conversion& conversion) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  GitCommand(options_).run(
      {"cat-file", "blob", format_oid(file.oid)}, Deadline(kLargeDeadline),
      {.directory = git_directory_, .output_fd = fd, .max_file_bytes = kMaxBlobBytes},
      "write " + shown(file));
  if (conversion.changes_bytes() && may_change_in_worktree(conversion, Mapping(fd, size).bytes()))
    throw Error(Code::resource_exhausted,
                shown(file) + " is larger than 64 MiB, and .gitattributes has it converted",
                "exempt it in .gitattributes: PATH -text -ident");
  return size;
}

FileStat BlobWriter::write(int directory_fd, const char* name, const ListedFile& file) {
  if (file.mode == kModeSubmodule) {
    if (mkdirat(directory_fd, name, 0755) < 0) throw_create_error(file, errno);
    ++counts_.submodules;
    return {};
  }
  const uint64_t size = file.mode == kModeSymlink ? write_link(directory_fd, name, file)
                                                  : write_file(directory_fd, name, file);
  ++counts_.files;
  counts_.bytes += size;
  return {mtime_s_, static_cast<uint32_t>(size)};
}

uint64_t BlobWriter::write_link(int directory_fd, const char* name, const ListedFile& file) {
  const GitOdbObject object = read(file);
  const std::string target(content_of(object));
  if (target.empty() || target.size() > 4095 || target.find('\0') != std::string::npos) {
    throw Error(Code::invalid_argument,
                "the repository has a symlink that is invalid on every file system: \"" +
                    base::escape_for_message(file.path) + "\"");
  }
  if (symlinkat(target.c_str(), directory_fd, name) < 0) throw_create_error(file, errno);
  const timespec times[2] = {{mtime_s_, 0}, {mtime_s_, 0}};
  base::check(utimensat(directory_fd, name, times, AT_SYMLINK_NOFOLLOW),
              "set the time of a symlink");
  return target.size();
}

uint64_t BlobWriter::write_small(int fd, const ListedFile& file, const Conversion& conversion) {
  const GitOdbObject object = read(file);
  std::string_view bytes = content_of(object);
  if (conversion.filter == "lfs" && is_lfs_pointer(bytes)) ++counts_.lfs_files;
  std::optional<std::string> converted;
  if (conversion.changes_bytes()) converted = to_worktree(conversion, bytes, format_oid(file.oid));
  if (converted) bytes = *converted;
  base::write_all(fd, bytes);
  return bytes.size();
}

uint64_t BlobWriter::write_file(int directory_fd, const char* name, const ListedFile& file) {
  Conversion conversion;
  if (attributes_.relevant()) {
    conversion = attributes_.conversion(file.path);
    if (!conversion.filter.empty() && conversion.filter != "lfs") ++counts_.other_filters;
  }
  const mode_t mode = file.mode == kModeExecutable ? 0755 : 0644;
  const Fd fd(openat(directory_fd, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) throw_create_error(file, errno);
  const size_t size = size_of(file);
  const uint64_t written = size > kMaxReadBytes ? write_large(fd.get(), file, size, conversion)
                                                : write_small(fd.get(), file, conversion);
  const timespec times[2] = {{mtime_s_, 0}, {mtime_s_, 0}};
  base::check(futimens(fd.get(), times), "set the time of a file");
  return written;
}

uint32_t file_time_of(git_repository* repository, const std::string& commit) {
  const GitCommit found = find_commit(repository, commit);
  const int64_t now_s = base::system_clock().wall_ms() / 1000;
  const int64_t time_s = std::clamp<int64_t>(git_commit_time(found.get()), kYear1980,
                                             std::max<int64_t>(now_s - 10, kYear1980));
  return static_cast<uint32_t>(time_s);
}

}  // namespace moorage::repo_cache
