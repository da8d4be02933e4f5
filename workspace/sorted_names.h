// The names of one directory in their order, however many there are: in pieces of bounded memory,
// each read by a listing of the whole directory. Of a directory that changes meanwhile, a name that
// comes or goes may be missing or come twice.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace moorage::workspace {

class SortedNames {
 public:
  SortedNames() = default;
  SortedNames(SortedNames&&) = default;
  SortedNames& operator=(SortedNames&&) = default;

  // The next name, of the directory that is open as `directory`; empty: there is none. `at_most`:
  // bytes of a piece, where one has to be read.
  std::optional<std::string> next(int directory, uint64_t at_most);
  // Of memory that it keeps: what its largest piece took.
  uint64_t bytes() const { return most_bytes_; }

 private:
  void read(int directory, uint64_t at_most);
  void drop_half();
  const char* at(uint32_t place) const { return pool_.data() + place; }

  std::string pool_;             // the names of a piece, a NUL behind each
  std::vector<uint32_t> order_;  // places in it, backwards: the next name is the last
  uint64_t most_bytes_ = 0;
  std::string last_;             // that was given
  std::string bound_;            // the least name that was left out of the piece
  bool more_ = true;             // there are names behind this piece
};

}  // namespace moorage::workspace
