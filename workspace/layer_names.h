// Whether the names of one part of a layer can be made: none is there twice, and a hard link names
// what stands before it and may have several names. A hostile tree has twenty million of them: they
// are sorted in runs, in a file without a name, and their memory is that of one run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fd.h"

namespace moorage::workspace {

class LayerNames {
 public:
  // `make_file` makes an empty file without a name; asked for none until a run is full.
  explicit LayerNames(std::function<base::Fd()> make_file);

  void add(const std::string& path, bool may_have_others);  // names, as hard links
  void add_link(const std::string& target);                 // what the name added last links to
  enum class Verdict : uint8_t { good, name_twice, link_to_nothing };
  Verdict finish();  // after the last one; they are forgotten

 private:
  enum class Kind : uint32_t { only_name, name, link };
  struct Record {
    uint64_t path = 0;   // hash of it: nothing inside a sandbox knows the seed
    uint32_t place = 0;  // of a link: where it stands
    Kind kind = Kind::only_name;

    bool operator<(const Record& other) const;
  };
  class Run;
  class Judge;

  void add(const Record& record);
  void write_run();
  uint64_t hash_of(const std::string& path) const;

  const std::function<base::Fd()> make_file_;
  const std::string seed_;
  std::vector<Record> records_;  // not yet in the file
  base::Fd file_;
  uint64_t runs_ = 0;  // in it
  uint32_t names_ = 0;
};

}  // namespace moorage::workspace
