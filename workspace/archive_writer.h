// Writes one archive: a pax tar in a zstd frame, its index last. Entries come in the order in which
// they are to be read: a directory before what is in it, a file before its hard links. Every byte
// goes to the sink as it is made; what grows with the archive is in files of the caller's.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "workspace/archive_entry.h"
#include "workspace/archive_zstd.h"

namespace moorage::workspace {

struct WriterOptions {
  int level = 3;
  unsigned threads = 2;
  // Makes an empty file without a name: for the index until its turn, for what is linked.
  std::function<base::Fd()> unnamed_file;
};

struct ArchiveFacts {
  StreamFacts stream;
  uint64_t entries = 0;
  std::string digest;  // of all entries in their order, hex: what a second reading must find
};

class ArchiveWriter {
 public:
  ArchiveWriter(WriterOptions options, ByteSink sink);
  ~ArchiveWriter();

  // A file is followed by its data and end(); all else is whole with begin().
  void begin(const ArchiveEntry& entry);
  // Ascending, all of it, and nothing of a hole.
  void data(uint64_t offset, std::string_view bytes);
  void end();
  void fill();  // where a file was begun and not ended: zeros for what is missing, and its end
  void put(const std::string& path, std::string_view bytes);      // a file as a whole
  void put_file(const std::string& path, int fd, uint64_t size);  // its first `size` bytes
  void put_journal(const std::string& path, int fd);              // without what its gaps pass over
  ArchiveFacts finish();

  base::Fd unnamed_file() const;

 private:
  struct State;
  void write_index_line(const ArchiveEntry& entry, const std::string& digest);
  std::unique_ptr<State> state_;
};

// The directory above a path; "" has none.
std::string parent_of(const std::string& path);

}  // namespace moorage::workspace
