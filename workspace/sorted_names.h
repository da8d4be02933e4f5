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
  uint64_t bytes() const { return pool_.capacity() + order_.capacity() * sizeof(uint32_t); }

 private:
  void read(int directory, uint64_t at_most);
  void drop_half();
  const char* at(uint32_t place) const { return pool_.data() + place; }

  std::string pool_;             // the names of a piece, a NUL behind each
  std::vector<uint32_t> order_;  // places in it, backwards: the next name is the last
  std::string last_;             // that was given
  std::string bound_;            // the least name that was left out of the piece
  bool more_ = true;             // there are names behind this piece
};

}  // namespace moorage::workspace
