// What git's upload-pack or receive-pack sends first over ssh (gitprotocol-pack, gitprotocol-v2):
// packets up to a flush. Over HTTP it answers a request of its own, and does not precede others.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace moorage::egress {

class GitAdvertisement {
 public:
  // Returns how many of the bytes belong to it.
  size_t take(std::string_view bytes);
  bool is_over() const { return over_; }
  // The host sends something else: not git, or an error in words.
  bool is_broken() const { return broken_; }

  bool has_first() const { return has_first_; }
  bool is_version_2() const { return first_ == "version 2\n"; }
  // What an ERR packet says; empty: there is none.
  std::string error() const;

 private:
  static constexpr size_t kLength = 4;  // hex digits before each packet
  static constexpr size_t kMostKept = 1'000;
  void begin_packet();

  std::string digits_;
  size_t left_ = 0;  // of the packet
  std::string first_;
  bool has_first_ = false;
  bool over_ = false;
  bool broken_ = false;
};

}  // namespace moorage::egress
