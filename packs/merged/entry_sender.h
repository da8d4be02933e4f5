// Reads single entries of merged directories and writes them into a pack (finder.h), with owners as
// inside and without overlay's attributes. Keeps the first name of each file with several names, up
// to kMaxLinkedFiles, so that its other names become hard links.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "packs/merged/finder.h"
#include "packs/merged/merged_digest.h"

namespace moorage::packs {

struct EntrySource {
  int directory = -1;  // merged
  std::string name;    // in it; empty: the directory itself
  std::string path;    // in the pack
  const InsideOwners& owners;
  // A file with several names: the layer of its inode, and its state there.
  std::optional<size_t> layer = {};
  struct stat status {};
  bool wants_digest = false;
  std::string known_digest = {};  // send it only if its digest differs
  bool forced = false;            // the receiver has nothing at this path
  bool muted = false;             // it has arrived already
};

struct SentResult {
  enum class Outcome : uint8_t { gone, skipped, unchanged, sent } outcome = Outcome::gone;
  std::string digest;        // if wanted
  bool unsure_link = false;  // its names were seen with different change times
};

class EntrySender {
 public:
  EntrySender(const MergedFinder::Pack& pack, std::function<void()> check_stopping,
              FoundChanges& found);

  // `before` runs right before the entry is written.
  SentResult send(const EntrySource& source, const std::function<void()>& before);
  void removal(const std::string& path);
  // Another name of this file was sent in this round, as a new file: this name must follow as a
  // link to it, even if nothing changed.
  bool lost_link(const std::string& path, size_t layer, const struct stat& status) const;

 private:
  using LinkKey = std::tuple<size_t, dev_t, ino_t>;
  struct Link {
    std::string path;
    int64_t changed_ns;
  };
  Fd open(const EntrySource& source, struct stat& status);
  std::optional<Node> read_node(const EntrySource& source, int fd, const struct stat& status);
  void read_attributes_of(Node& node, const EntrySource& source, int fd);
  template <typename Use>
  void read_data(int file, const struct stat& status, const Use& use);
  std::string digest_of(const Node& node, int fd, const struct stat& status);
  void forget_links(const std::string& path);
  std::optional<std::string> first_name(const EntrySource& source, SentResult& result);
  void send_file(const Node& node, int file, const struct stat& status, std::string* digest);

  const MergedFinder::Pack& pack_;
  const std::function<void()> check_stopping_;
  FoundChanges& found_;
  std::vector<char> buffer_;
  std::map<LinkKey, Link> links_;
  std::map<std::string, LinkKey> link_keys_;  // by path
  std::map<std::string, LinkKey> linked_;     // paths sent as links to those
};

// The entry is gone, or another one took its place a moment ago.
bool is_gone(int error_number);

}  // namespace moorage::packs
