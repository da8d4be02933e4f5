#include "layers/sorted_names.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/os/fd.h"
#include "base/os/open_beneath.h"

namespace moorage::layers {
namespace {

// Reserve a larger piece at once; only its used part costs memory. Growing by doubling would hold
// it twice meanwhile.
constexpr size_t kSmallBytes = 64 << 10;
constexpr size_t kLeastNameBytes = 2 + sizeof(uint32_t);  // one letter, its end, its place

}  // namespace

std::optional<std::string> SortedNames::next(int directory, uint64_t at_most) {
  if (order_.empty() && more_) read(directory, at_most);
  if (order_.empty()) return std::nullopt;
  last_ = at(order_.back());
  order_.pop_back();
  return last_;
}

void SortedNames::read(int directory, uint64_t at_most) {
  pool_.clear();
  more_ = false;
  const std::unique_ptr<DIR, int (*)(DIR*)> stream(
      fdopendir(base::open_directory_beneath(directory, "").release()), closedir);
  if (!stream) base::throw_errno("list a directory");
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(stream.get());
    if (!entry && errno != 0) base::throw_errno("list a directory");
    if (!entry) break;
    const std::string_view name = entry->d_name;
    if (name == "." || name == ".." || name <= last_ || (more_ && name >= bound_)) continue;
    if (pool_.size() > kSmallBytes) {
      pool_.reserve(at_most + NAME_MAX + 1);
      order_.reserve(at_most / kLeastNameBytes + 1);
    }
    order_.push_back(static_cast<uint32_t>(pool_.size()));
    pool_.append(name).push_back('\0');
    const uint64_t bytes = pool_.size() + order_.size() * sizeof(uint32_t);
    most_bytes_ = std::max(most_bytes_, bytes);
    if (bytes > at_most) drop_half();
  }
  std::sort(order_.begin(), order_.end(),
            [this](uint32_t one, uint32_t other) { return std::strcmp(at(one), at(other)) > 0; });
}

// Drops the greater half.
void SortedNames::drop_half() {
  const auto middle = order_.begin() + static_cast<ptrdiff_t>(order_.size() / 2);
  std::nth_element(order_.begin(), middle, order_.end(), [this](uint32_t one, uint32_t other) {
    return std::strcmp(at(one), at(other)) < 0;
  });
  bound_ = at(*middle);
  more_ = true;
  order_.erase(middle, order_.end());
  std::sort(order_.begin(), order_.end());
  size_t end = 0;
  for (uint32_t& place : order_) {  // each moves forward over the dropped names
    const size_t size = std::strlen(at(place)) + 1;
    std::memmove(pool_.data() + end, at(place), size);
    place = static_cast<uint32_t>(end);
    end += size;
  }
  pool_.resize(end);
}

}  // namespace moorage::layers
