// Reads an archive while it is written, with the checks of an import (import_check.h), and lets its
// last bytes through only when what was read is what was written. So whoever gets the end of an
// export has an archive that can be imported, and a mistake of the writer's is a failed export and
// no lost work.
#pragma once

#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <thread>

#include "workspace/archive_file.h"
#include "workspace/byte_pipe.h"

namespace moorage::workspace {

class ReadBack {
 public:
  // `sink` gets all bytes in their order, the trailer after finish() only.
  ReadBack(ByteSink sink, const ReadOptions& options);
  ~ReadBack();  // without finish(): the end never came

  void write(std::string_view bytes);  // throws what the reader met, or the sink
  // After the last byte. Throws corrupted when something else was read.
  void finish(const ArchiveFacts& written);

 private:
  void read();
  void join();

  const ByteSink sink_;
  const ReadOptions options_;
  std::string held_;
  BytePipe pipe_;
  // The reader's, until it was joined.
  ArchiveFacts found_;
  std::exception_ptr failure_;
  std::thread reader_;
};

}  // namespace moorage::workspace
