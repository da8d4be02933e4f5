// .gitattributes over data: which conversion a path gets between object database and worktree.
// Only the attributes that change bytes are kept: text, crlf, eol, ident, filter,
// working-tree-encoding. Files are handed in; nothing of the system's or a user's configuration
// counts.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace moorage::repo_cache {

enum class LineEnds {
  keep,       // no conversion
  lf,         // to LF on the way in
  crlf,       // to CRLF on the way out, to LF in
  auto_lf,    // as lf, if it looks like text
  auto_crlf,  // as crlf, if it looks like text
};

struct Conversion {
  LineEnds line_ends = LineEnds::keep;
  bool ident = false;
  std::string encoding;  // of the worktree; empty: as it is
  std::string filter;    // named driver (lfs...), which is never run
  bool changes_bytes() const { return line_ends != LineEnds::keep || ident || !encoding.empty(); }
};

class Attributes {
 public:
  Attributes();
  ~Attributes();
  Attributes(Attributes&&) noexcept;
  Attributes& operator=(Attributes&&) noexcept;

  // The .gitattributes of a directory ("" = root). Replaces an earlier one. Not while others read.
  void add(const std::string& directory, std::string_view bytes);
  // What a file of these bytes takes in memory once it is added, at most. A rule takes a hundred
  // times its text.
  static uint64_t memory_bytes(std::string_view bytes);
  // After it no pattern is tried any more, so that no path has a conversion: who asks must end
  // then, too.
  void set_deadline(std::chrono::steady_clock::time_point deadline);
  // From now on patterns that are tried count, over all paths and threads, in steps of about a few
  // nanoseconds (path_pattern.h): `conversion` throws resource_exhausted beyond so many.
  void set_most_steps(uint64_t steps);
  uint64_t steps() const;
  // False: no file given mentions any attribute of ours, so every conversion is empty.
  bool relevant() const;
  Conversion conversion(std::string_view path) const;  // of a file; from any thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::repo_cache
