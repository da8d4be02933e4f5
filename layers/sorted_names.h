// The sorted names of one directory of any size: in pieces of bounded memory, each read by listing
// the whole directory. If the directory changes meanwhile, an added or removed name may be missing
// or appear twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moorage::layers {

class SortedNames {
 public:
  SortedNames() = default;
  SortedNames(SortedNames&&) = default;
  SortedNames& operator=(SortedNames&&) = default;

  // The next name in the directory open as `directory`; empty: the end. `at_most`: bytes of a piece
  // if one must be read.
  std::optional<std::string> next(int directory, uint64_t at_most);
  // Memory in use: the size of its largest piece.
  uint64_t bytes() const { return most_bytes_; }

 private:
  void read(int directory, uint64_t at_most);
  void drop_half();
  const char* at(uint32_t place) const { return pool_.data() + place; }

  std::string pool_;             // the names of a piece, each with a NUL
  std::vector<uint32_t> order_;  // offsets in it, reversed: the next name is last
  uint64_t most_bytes_ = 0;
  std::string last_;   // returned last
  std::string bound_;  // the least name left out of the piece
  bool more_ = true;   // more names follow this piece
};

}  // namespace moorage::layers
