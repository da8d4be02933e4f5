// Whether the names of one part of a layer can be made: no name occurs twice, and a hard link names
// an earlier entry that may have several names. A hostile tree may have twenty million names, so
// they are sorted in runs in an unnamed file; memory holds only one run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/os/fd.h"

namespace moorage::packs {

class LayerNames {
 public:
  // `make_file` makes an empty unnamed file; called only once a run is full.
  explicit LayerNames(std::function<Fd()> make_file);

  void add(const std::string& path, bool may_have_others);  // other names: hard links
  void add_link(const std::string& target);                 // the target of the name added last
  enum class Verdict : uint8_t { good, name_twice, link_to_nothing };
  Verdict finish();  // after the last name; forgets them all

 private:
  enum class Kind : uint32_t { only_name, name, link };
  struct Record {
    uint64_t path = 0;   // its hash: nothing inside a sandbox knows the seed
    uint32_t place = 0;  // position among the names
    Kind kind = Kind::only_name;

    bool operator<(const Record& other) const;
  };
  class Run;
  class Judge;

  void add(const Record& record);
  void write_run();
  uint64_t hash_of(const std::string& path) const;

  const std::function<Fd()> make_file_;
  const std::string seed_;
  std::vector<Record> records_;  // not yet in the file
  Fd file_;
  uint64_t runs_ = 0;  // in the file
  uint32_t names_ = 0;
};

}  // namespace moorage::packs
