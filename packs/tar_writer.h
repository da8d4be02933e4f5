// Writes one archive: a pax tar in a zstd frame, with its index last. Entries come in reading
// order: a directory before its contents, a file before its hard links. Bytes go to the sink at
// once; data that grows with the archive is kept in the caller's files.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/os/fd.h"
#include "packs/tar_entry.h"
#include "packs/zstd_frame.h"

namespace moorage::packs {

struct WriterOptions {
  int level = 3;
  unsigned threads = 2;
  // Makes an empty unnamed file: for the index until it is written, and for hard links.
  std::function<Fd()> unnamed_file;
};

struct ArchiveFacts {
  StreamFacts stream;
  uint64_t entries = 0;
  std::string digest;  // of all entries in order, hex: a second reading must give the same
};

class ArchiveWriter {
 public:
  ArchiveWriter(const WriterOptions& options, ByteSink sink)
      : unnamed_file_(options.unnamed_file),
        index_(unnamed_file_()),
        compressor_(options.level, options.threads, std::move(sink)) {}

  // A file needs data and end() after it; any other entry is complete with begin().
  void begin(const ArchiveEntry& entry);
  // Ascending and complete; nothing inside a hole.
  void data(uint64_t offset, std::string_view bytes);
  // From a part of a file; stops where the file ends: end() reports it.
  void data_from(int fd, const Extent& part, uint64_t offset);
  void end();
  void fill();  // ends an unfinished file, with zeros for the missing rest
  void put(const std::string& path, std::string_view bytes);      // a whole file
  void put_file(const std::string& path, int fd, uint64_t size);  // its first `size` bytes
  void put_journal(const std::string& path, int fd);              // without bytes that gaps skip
  ArchiveFacts finish();

  Fd unnamed_file() const { return unnamed_file_(); }

 private:
  void write_index_line(const std::string& digest);
  void write_index();

  const std::function<Fd()> unnamed_file_;
  Fd index_;
  std::string index_buffer_;
  uint64_t index_bytes_ = 0;
  Compressor compressor_;
  ArchiveEntry entry_;            // current entry of data() and end()
  std::vector<Extent> expected_;  // ranges of its content still to come
  bool in_file_ = false;          // begun but not ended
  EntryDigest digest_;
  base::Sha256 all_;
  uint64_t entries_ = 0;
};

// The parent directory of a path; "" for a top-level one.
std::string parent_of(const std::string& path);

}  // namespace moorage::packs
