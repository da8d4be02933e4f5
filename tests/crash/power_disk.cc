// A disk with a volatile write cache: a FUSE file system with one file, /disk, that backs a loop
// device. A write lands in the cache and is seen at once; a flush (fsync) makes all before it
// durable. Both are in memory. A line on standard input
//
//   cut none|all|some SEED FILE
//
// writes FILE, the disk as a power cut at this moment leaves it: without every write that was not
// flushed, with all of them, or with each 512-byte sector of them by the toss of a coin, in an
// order of its own (lost, reordered, torn). Answers a line "writes N flushes N pending N". The end
// of standard input ends the disk.
//
// Usage: power_disk IMAGE MOUNTPOINT. IMAGE is what the disk has at the start; it is only read. The
// file is opened direct_io: the kernel must not cache for it. It does not model a disk that lies
// about flushes.
#define FUSE_USE_VERSION 31
#include <fcntl.h>
#include <fuse.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iostream>
#include <mutex>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr size_t kSector = 512;
constexpr size_t kPiece = 64 << 10;  // for an image: empty pieces stay holes

struct Write {
  size_t offset;
  std::string bytes;
};

struct Disk {
  std::mutex mutex;
  std::vector<char> seen;     // with all writes
  std::vector<char> durable;  // with flushed writes
  std::vector<Write> pending;
  uint64_t writes = 0;
  uint64_t flushes = 0;

  bool load(const char* path) {
    std::ifstream image(path, std::ios::binary | std::ios::ate);
    if (!image) return false;
    seen.resize(static_cast<size_t>(image.tellg()));
    image.seekg(0).read(seen.data(), static_cast<std::streamsize>(seen.size()));
    durable = seen;
    return static_cast<bool>(image);
  }

  void write(size_t offset, const char* bytes, size_t size) {
    const std::lock_guard lock(mutex);
    std::memcpy(&seen[offset], bytes, size);
    pending.push_back({offset, std::string(bytes, size)});
    ++writes;
  }

  void flush() {
    const std::lock_guard lock(mutex);
    for (const Write& write : pending) {
      std::memcpy(&durable[write.offset], write.bytes.data(), write.bytes.size());
    }
    pending.clear();
    ++flushes;
  }

  std::vector<char> cut(const std::string& what, uint32_t seed) {
    const std::lock_guard lock(mutex);
    std::vector<char> image = what == "all" ? seen : durable;
    if (what == "some") {
      std::mt19937 random(seed);
      std::vector<const Write*> order;
      for (const Write& write : pending) order.push_back(&write);
      std::shuffle(order.begin(), order.end(), random);
      for (const Write* write : order) {
        for (size_t at = 0; at < write->bytes.size(); at += kSector) {
          if (random() & 1) continue;
          const size_t size = std::min(kSector, write->bytes.size() - at);
          std::memcpy(&image[write->offset + at], &write->bytes[at], size);
        }
      }
    }
    std::printf("writes %llu flushes %llu pending %zu\n", static_cast<unsigned long long>(writes),
                static_cast<unsigned long long>(flushes), pending.size());
    return image;
  }
};

Disk disk;

bool is_disk(const char* path) { return std::strcmp(path, "/disk") == 0; }

int get_attributes(const char* path, struct stat* status, fuse_file_info*) {
  *status = {};
  if (std::strcmp(path, "/") == 0) {
    status->st_mode = S_IFDIR | 0700;
    status->st_nlink = 2;
    return 0;
  }
  if (!is_disk(path)) return -ENOENT;
  status->st_mode = S_IFREG | 0600;
  status->st_nlink = 1;
  status->st_size = static_cast<off_t>(disk.seen.size());
  return 0;
}

int open_disk(const char* path, fuse_file_info* file) {
  if (!is_disk(path)) return -ENOENT;
  file->direct_io = 1;
  return 0;
}

int read_disk(const char*, char* bytes, size_t size, off_t offset, fuse_file_info*) {
  const std::lock_guard lock(disk.mutex);
  const auto at = static_cast<size_t>(offset);
  if (at >= disk.seen.size()) return 0;
  size = std::min(size, disk.seen.size() - at);
  std::memcpy(bytes, &disk.seen[at], size);
  return static_cast<int>(size);
}

int write_disk(const char*, const char* bytes, size_t size, off_t offset, fuse_file_info*) {
  const auto at = static_cast<size_t>(offset);
  if (at + size > disk.seen.size()) return -ENOSPC;
  disk.write(at, bytes, size);
  return static_cast<int>(size);
}

int flush_disk(const char*, int, fuse_file_info*) {
  disk.flush();
  return 0;
}

bool save(const std::vector<char>& image, const std::string& path) {
  static const std::array<char, kPiece> zeros{};
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return false;
  bool good = ftruncate(file, static_cast<off_t>(image.size())) == 0;
  for (size_t at = 0; good && at < image.size(); at += kPiece) {
    const size_t size = std::min(kPiece, image.size() - at);
    if (std::memcmp(&image[at], zeros.data(), size) == 0) continue;
    good = pwrite(file, &image[at], size, static_cast<off_t>(at)) == static_cast<ssize_t>(size);
  }
  return close(file) == 0 && good;
}

void obey(fuse* mounted) {
  for (std::string line; std::getline(std::cin, line);) {
    std::istringstream words(line);
    std::string verb, what, path;
    uint32_t seed = 0;
    words >> verb >> what >> seed >> path;
    if (verb != "cut" || path.empty()) {
      std::printf("not understood\n");
    } else if (!save(disk.cut(what, seed), path)) {
      std::printf("could not write %s: %s\n", path.c_str(), std::strerror(errno));
    }
    std::fflush(stdout);
  }
  fuse_exit(mounted);
  fuse_unmount(mounted);  // the loop waits for a request, and an unmount is one
}

}  // namespace

int main(int count, char** words) {
  if (count != 3 || !disk.load(words[1])) {
    std::fprintf(stderr, "usage: power_disk IMAGE MOUNTPOINT\n");
    return 2;
  }
  fuse_operations operations{};
  operations.getattr = get_attributes;
  operations.open = open_disk;
  operations.read = read_disk;
  operations.write = write_disk;
  operations.fsync = flush_disk;
  fuse_args arguments = FUSE_ARGS_INIT(1, words);
  fuse* mounted = fuse_new(&arguments, &operations, sizeof operations, nullptr);
  if (!mounted || fuse_mount(mounted, words[2]) != 0) return 1;
  std::thread(obey, mounted).detach();
  std::printf("ready\n");
  std::fflush(stdout);
  const int result = fuse_loop(mounted);
  _exit(result < 0 ? 1 : 0);  // the thread above may still be reading
}
