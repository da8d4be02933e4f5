// The outside of an archive: one zstd frame with its content checksum, then a skippable frame that
// every zstd program passes over, with the SHA-256 of all before it. So whoever holds a copy can
// tell that it is whole without unpacking it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/digest.h"

namespace moorage::workspace {

using ByteSink = std::function<void(std::string_view)>;  // may throw
using ByteSource = std::function<std::string_view()>;    // empty: the end; may throw
inline constexpr size_t kTrailerBytes = 8 + 8 + 32;      // magic, size; our mark; SHA-256

struct StreamFacts {
  uint64_t bytes = 0;  // of all, the trailer included
  std::string sha256;  // of all, hex
};

class Compressor {
 public:
  Compressor(int level, unsigned threads, ByteSink sink);
  ~Compressor();
  void add(std::string_view bytes);
  StreamFacts finish();

 private:
  struct State;
  void run(std::string_view bytes, bool end);
  void emit(std::string_view bytes);

  std::unique_ptr<State> state_;
  ByteSink sink_;
  base::Sha256 digest_;
  uint64_t bytes_ = 0;
};

// Hostile input: memory is bounded by the window that it may ask for (32 MiB).
class Decompressor {
 public:
  explicit Decompressor(ByteSource source);
  ~Decompressor();
  // The next bytes, valid until the next call; empty: the frame has ended and the trailer agreed.
  // Throws corrupted for all else.
  std::string_view next();
  const StreamFacts& facts() const { return facts_; }  // once next() was empty

 private:
  struct State;
  bool refill();
  void read_trailer();

  std::unique_ptr<State> state_;
  ByteSource source_;
  base::Sha256 digest_;
  StreamFacts facts_;
};

}  // namespace moorage::workspace
