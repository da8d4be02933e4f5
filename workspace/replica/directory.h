// The directory of the replica (replica.h): on another disk, or on another machine through NFS. It
// is opened once; everything below is opened from that descriptor, one name at a time, never
// through a link. Contents:
//   replica      "moorage replica 1", then the owner
//   lock         flock(2) of the writer, or of a restore
//   packs/       <series>.<number>.whole, or .more with the changes since the previous number
//   archives/    archives of workspaces, identical to those in the store
//   state/       <number>.copy: the database, and which packs and archives belong to it
// A file appears by rename, whole and synced; an unfinished one ends in ".new".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/os/atomic_file.h"

namespace moorage::workspace {

enum class ReplicaPart : uint8_t { packs, archives, state };

class ReplicaDirectory {
 public:
  struct Writer {
    std::string path;
    std::vector<std::string> store;  // where the store is: refuse these file systems
    bool same_disk = false;          // unless set
    std::string owner;               // "0a1b2c3d 0": the store and its epoch
  };
  // Creates missing parts, takes the lock and removes unfinished files. unsupported: the directory
  // is unsuitable; has a hint. conflict: another process uses it.
  static ReplicaDirectory for_writing(const Writer& writer);
  // Somebody else may have made it: trusts nothing in it and changes nothing.
  static ReplicaDirectory for_reading(const std::string& path);

  const std::string& path() const { return path_; }
  const std::string& owner() const { return owner_; }
  bool is_still_there() const;  // the same directory; throws as for_writing

  std::vector<std::string> names(ReplicaPart part) const;
  base::Fd open(ReplicaPart part, const std::string& name) const;  // a regular file; to read
  void remove(ReplicaPart part, const std::string& name) const;    // missing is fine
  void sync(ReplicaPart part) const;                               // removals are durable

 private:
  friend class ReplicaFile;
  explicit ReplicaDirectory(std::string path) : path_(std::move(path)) {}
  void open_parts(bool make);
  void refuse_unsafe() const;
  void take_lock(bool may_write);
  void settle_owner(const std::string& wanted);
  int part(ReplicaPart part) const;

  std::string path_;
  Writer writer_;
  std::string owner_;
  base::Fd top_;
  base::Fd lock_;
  std::vector<base::Fd> parts_;
};

// An unfinished file; removed without commit().
class ReplicaFile {
 public:
  ReplicaFile(const ReplicaDirectory& directory, ReplicaPart part, const std::string& name);

  void write(std::string_view bytes);
  uint64_t bytes() const { return bytes_; }
  void commit() { file_.commit_durable(); }

 private:
  static int cleared(const ReplicaDirectory& directory, ReplicaPart part, const std::string& name);

  base::AtomicFile file_;
  uint64_t bytes_ = 0;
};

}  // namespace moorage::workspace
