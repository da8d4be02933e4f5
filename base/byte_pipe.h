// A pipe between two threads of this process: one writes bytes while the other reads them. The
// memory is the kernel's pipe buffer, so the faster side waits. Either side may leave: the other's
// next call then fails. The writer's error reaches the reader, so a truncated stream never looks
// complete.
#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/os/fd.h"

namespace moorage::base {

class BytePipe {
 public:
  BytePipe();

  // The writer's side. Throws unavailable if the reader has left.
  void write(std::string_view bytes);
  // Waits at most `patience`; returns the number of bytes written.
  size_t write_some(std::string_view bytes, std::chrono::milliseconds patience);
  void finish() { write_end_.reset(); }  // everything was written
  void fail(const Error& reason);        // the reader gets this instead of the end

  // The reader's side. `read` waits; empty is the end. Throws the writer's error.
  std::string read(size_t max_bytes);
  std::optional<std::string> try_read(size_t max_bytes);  // nullopt: no bytes yet
  void leave() { read_end_.reset(); }

 private:
  std::mutex mutex_;
  Fd read_end_;
  Fd write_end_;
  std::optional<Error> error_;
};

}  // namespace moorage::base
