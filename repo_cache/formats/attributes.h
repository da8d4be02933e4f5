// .gitattributes over data: the conversion of a path between object database and worktree. Keeps
// only the attributes that change bytes: text, crlf, eol, ident, filter, working-tree-encoding.
// Files are passed in; system and user configuration is ignored.
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
  auto_lf,    // like lf, if it looks like text
  auto_crlf,  // like crlf, if it looks like text
};

struct Conversion {
  LineEnds line_ends = LineEnds::keep;
  bool ident = false;
  std::string encoding;  // of the worktree; empty: no conversion
  std::string filter;    // named driver (lfs...), never run
  bool changes_bytes() const { return line_ends != LineEnds::keep || ident || !encoding.empty(); }
};

class Attributes {
 public:
  Attributes();
  ~Attributes();
  Attributes(Attributes&&) noexcept;
  Attributes& operator=(Attributes&&) noexcept;

  // Adds the .gitattributes of a directory ("" = root), replacing an earlier one. Not thread-safe.
  void add(const std::string& directory, std::string_view bytes);
  // Upper bound of the memory that a file of these bytes takes once added. A rule takes a hundred
  // times its text.
  static uint64_t memory_bytes(std::string_view bytes);
  // After it no pattern is tried and no path has a conversion: the caller must stop then, too.
  void set_deadline(std::chrono::steady_clock::time_point deadline);
  // Limits pattern matching over all paths and threads, in steps of a few nanoseconds
  // (path_pattern.h): `conversion` throws resource_exhausted beyond the limit.
  void set_most_steps(uint64_t steps);
  uint64_t steps() const;
  // False: no file sets an attribute that is kept here, so every conversion is empty.
  bool relevant() const;
  Conversion conversion(std::string_view path) const;  // of a file; from any thread

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace moorage::repo_cache
