#include "base/os/atomic_file.h"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cassert>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "base/os/files.h"
#include "base/os/open_beneath.h"

namespace moorage::base {
namespace {

constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL;

std::string parent_of(const std::string& path) {
  size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// The pid and a count: concurrent writers of one file never share a temporary name.
std::string name_of_our_own(const std::string& path) {
  static std::atomic<uint64_t> count{0};
  size_t name = path.rfind('/') == std::string::npos ? 0 : path.rfind('/') + 1;
  return path.substr(0, name) + "." + path.substr(name) + "." + std::to_string(getpid()) + "." +
         std::to_string(++count) + ".new";
}

std::string random_name(const std::string& name) {
  uint64_t number = 0;
  if (getrandom(&number, sizeof number, 0) != sizeof number) throw_errno("get a random number");
  char text[17];
  std::snprintf(text, sizeof text, "%016" PRIx64, number);
  return name + "." + text;
}

// The umask matters only for others' rights; some network file systems reject every chmod.
Fd with_mode(Fd file, const AtomicFileOptions& options, const std::string& path) {
  if ((options.mode & 077) != 0) check(fchmod(file.get(), options.mode), "set the mode of " + path);
  return file;
}

// NFS and others lack RENAME_NOREPLACE.
int rename_without_replacing(int directory, const char* from, const char* to) {
  const int renamed = renameat2(directory, from, directory, to, RENAME_NOREPLACE);
  if (renamed == 0 || errno != EINVAL) return renamed;
  const int linked = linkat(directory, from, directory, to, 0);
  if (linked == 0) unlinkat(directory, from, 0);
  return linked;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path, AtomicFileOptions options)
    : directory_(AT_FDCWD), name_(path), options_(std::move(options)) {
  if (options_.suffix.empty()) {
    temporary_ = name_of_our_own(path);
    unlink(temporary_.c_str());  // from an earlier process with this pid
  } else {
    temporary_ = path + options_.suffix;
  }
  fd_ = with_mode(open_file(temporary_, kFlags | O_NOFOLLOW, options_.mode), options_, temporary_);
}

// A fixed name, so that a kill leaves at most one file. If something occupies it, such as a
// directory made by an agent, use an unpredictable name.
AtomicFile::AtomicFile(int directory, std::string name, AtomicFileOptions options)
    : directory_(directory), name_(std::move(name)), options_(std::move(options)) {
  assert(!name_.empty() && name_.find('/') == std::string::npos);
  if (options_.suffix.empty()) {
    temporary_ = "." + name_ + ".moorage-new";
    unlinkat(directory_, temporary_.c_str(), 0);
  } else {
    temporary_ = name_ + options_.suffix;
  }
  Fd file = try_open_beneath(directory_, temporary_, kFlags, options_.mode);
  if (!file) {
    if (errno == EEXIST) temporary_ = random_name(temporary_);
    file = open_beneath(directory_, temporary_, kFlags, options_.mode);
  }
  fd_ = with_mode(std::move(file), options_, temporary_);
}

AtomicFile::~AtomicFile() {
  if (!temporary_.empty()) unlinkat(directory_, temporary_.c_str(), 0);
}

void AtomicFile::write(std::string_view bytes) {
  synced_ = false;
  try {
    write_all(fd_.get(), bytes);
  } catch (Error& error) {
    throw error.add_context(name_);
  }
}

void AtomicFile::sync() {
  (options_.elsewhere ? sync_elsewhere : sync_file)(fd_.get(), name_);
  synced_ = true;
}

void AtomicFile::commit() {
  const char* from = temporary_.c_str();
  const int renamed = options_.replaces ? renameat(directory_, from, directory_, name_.c_str())
                                        : rename_without_replacing(directory_, from, name_.c_str());
  if (renamed < 0 && errno == EEXIST && !options_.replaces)
    throw Error(Code::already_exists, name_ + " already exists");
  check(renamed, "replace " + name_);
  temporary_.clear();
}

void AtomicFile::commit_durable() {
  if (!synced_) sync();
  commit();
  const Fd parent = directory_ == AT_FDCWD ? open_directory(parent_of(name_)) : Fd();
  (options_.elsewhere ? sync_elsewhere : sync_file)(parent ? parent.get() : directory_, name_);
}

void write_file_durable(const std::string& path, std::string_view bytes, mode_t mode) {
  AtomicFile file(path, {.mode = mode});
  file.write(bytes);
  file.commit_durable();
}

void write_file(const std::string& path, std::string_view bytes, mode_t mode) {
  AtomicFile file(path, {.mode = mode});
  file.write(bytes);
  file.commit();
}

}  // namespace moorage::base
