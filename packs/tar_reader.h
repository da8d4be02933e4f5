// Reads one archive, which may be hostile: checks that the writer could have made every entry
// (type, path, owner, no second index), and at the end every digest against the index, the frame
// against its checksum and the whole against the trailer. Memory is bounded: 32 bytes for each
// entry, 32 MiB of zstd, and what libarchive can build from max_step_bytes. Errors name the damaged
// entry.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "packs/tar_entry.h"
#include "packs/tar_writer.h"
#include "packs/zstd_frame.h"

struct archive;  // of libarchive

namespace moorage::packs {

struct ReadLimits {
  uint64_t max_entries = 20'000'000;
  uint64_t max_bytes = 1ULL << 50;    // of the tar, decompressed
  uint64_t max_step_bytes = 4 << 20;  // of one header, or of one map of holes
  // Called once for each check_bytes of the tar, to check the target disk. May throw.
  std::function<void()> check = {};
  uint64_t check_bytes = 4 << 20;
};

class ArchiveReader {
 public:
  ArchiveReader(ByteSource source, const ReadLimits& limits);
  ArchiveReader(ArchiveReader&&) = delete;

  // The next entry, valid until the next call; the unread rest of the previous one is skipped (but
  // checked). Null: the end, and everything matched. Throws corrupted; invalid_argument for an
  // entry that the writer never makes; resource_exhausted beyond a limit.
  const ArchiveEntry* next();
  // The next piece of the entry's content, valid until the next call. False at its end.
  struct Piece {
    uint64_t offset = 0;
    std::string_view bytes;
  };
  bool read(Piece& piece);
  std::string read_all(uint64_t max_bytes);             // resource_exhausted beyond; refuses holes
  const ArchiveFacts& facts() const { return facts_; }  // valid after next() returned null

 private:
  static ssize_t give(archive* tar, void* self, const void** bytes);
  std::string place() const;  // our position, for messages
  [[noreturn]] void fail();
  void finish_entry();
  void verify_index();

  const ReadLimits limits_;
  Decompressor decompressor_;
  std::exception_ptr failure_;
  std::unique_ptr<archive, int (*)(archive*)> tar_;
  uint64_t step_bytes_ = 0;
  uint64_t bytes_ = 0;
  uint64_t next_check_ = 0;
  ArchiveEntry entry_;
  bool in_entry_ = false;
  EntryDigest digest_;
  base::Sha256 all_;
  std::string digests_;  // 32 bytes each, in order
  ArchiveFacts facts_;
  bool done_ = false;
};

}  // namespace moorage::packs
