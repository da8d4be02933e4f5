// Reads an archive while it is written, with the checks of an import (import_check.h), and releases
// its last bytes only if everything reads back as written. So an export that ends can be imported,
// and a bug in the writer fails the export instead of losing work.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <thread>

#include "base/byte_pipe.h"
#include "workspace/archive/file.h"

namespace moorage::workspace {

class ReadBack {
 public:
  // `sink` gets all bytes in order; the trailer only after finish().
  ReadBack(packs::ByteSink sink, const ReadOptions& options);
  ~ReadBack();  // without finish(): the export was abandoned

  void write(std::string_view bytes);  // rethrows errors of the reader and the sink
  // After the last byte. Throws corrupted if the bytes read back differ.
  void finish(const packs::ArchiveFacts& written);

 private:
  void read();
  void join();

  const packs::ByteSink sink_;
  const ReadOptions options_;
  std::string held_;
  base::BytePipe pipe_;
  // Belong to the reader until it is joined.
  packs::ArchiveFacts found_;
  std::exception_ptr failure_;
  std::thread reader_;
};

}  // namespace moorage::workspace
