// The outer format of an archive: one zstd frame with its content checksum, then a skippable frame
// that every zstd program ignores, with the SHA-256 of everything before it. So anybody with a copy
// can verify that it is complete without unpacking it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "base/digest.h"

namespace moorage::packs {

using ByteSink = std::function<void(std::string_view)>;  // may throw
using ByteSource = std::function<std::string_view()>;    // empty: the end; may throw
std::string frame_trailer(const std::string& digest);    // raw SHA-256 of the frame
inline constexpr size_t kTrailerBytes = 8 + 8 + 32;      // magic, size; our mark; SHA-256

struct StreamFacts {
  uint64_t bytes = 0;  // of the whole stream, trailer included
  std::string sha256;  // of the whole stream, hex
};

class Compressor {
 public:
  Compressor(int level, unsigned threads, ByteSink sink);
  ~Compressor();
  void add(std::string_view bytes) { run(bytes, false); }
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

// The input may be hostile: memory is bounded by the largest window allowed (32 MiB).
class Decompressor {
 public:
  explicit Decompressor(ByteSource source);
  ~Decompressor();
  // The next bytes, valid until the next call; empty: the frame ended and the trailer matched.
  // Throws corrupted in all other cases.
  std::string_view next();
  const StreamFacts& facts() const { return facts_; }  // valid after next() returned empty
  // More bytes follow the trailer: call it before the first next().
  void expect_more() { more_follows_ = true; }
  void start_next();                // another frame, after next() returned empty
  std::string raw(size_t at_most);  // bytes after the trailer, not compressed

 private:
  struct State;
  bool refill();
  void read_trailer();

  std::unique_ptr<State> state_;
  ByteSource source_;
  base::Sha256 digest_;
  StreamFacts facts_;
  bool more_follows_ = false;
};

}  // namespace moorage::packs
