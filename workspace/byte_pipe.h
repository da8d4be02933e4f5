// A pipe between two threads of this process: one makes bytes while the other takes them.
// Memory is the kernel's pipe buffer, so whoever is faster waits. Either side may leave: the other
// then learns it from its next call. How the writer ended goes along, so a cut is never taken for
// an end.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/fd.h"

namespace moorage::workspace {

class BytePipe {
 public:
  BytePipe();

  // The writer's side. Throws unavailable when the reader has left.
  void write(std::string_view bytes);
  // How many bytes went in, after a wait for `patience` at most.
  size_t write_some(std::string_view bytes, std::chrono::milliseconds patience);
  void finish();                         // all was written
  void fail(const base::Error& reason);  // what the reader gets instead of the end

  // The reader's side. `read` waits; empty is the end. Throws what the writer failed with.
  std::string read(size_t max_bytes);
  std::optional<std::string> try_read(size_t max_bytes);  // nothing: there is nothing yet
  void leave();

 private:
  std::mutex mutex_;
  base::Fd read_end_;
  base::Fd write_end_;
  std::optional<base::Error> error_;
};

}  // namespace moorage::workspace
