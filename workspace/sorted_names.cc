#include "workspace/sorted_names.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/error.h"
#include "base/fd.h"
#include "base/open_beneath.h"

namespace moorage::workspace {

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
    order_.push_back(static_cast<uint32_t>(pool_.size()));
    pool_.append(name).push_back('\0');
    if (pool_.size() + order_.size() * sizeof(uint32_t) > at_most) drop_half();
  }
  std::sort(order_.begin(), order_.end(),
            [this](uint32_t one, uint32_t other) { return std::strcmp(at(one), at(other)) > 0; });
  if (pool_.capacity() > 2 * pool_.size()) pool_.shrink_to_fit();
}

// The greater one.
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
  for (uint32_t& place : order_) {  // each moves towards the front, over what went
    const size_t size = std::strlen(at(place)) + 1;
    std::memmove(pool_.data() + end, at(place), size);
    place = static_cast<uint32_t>(end);
    end += size;
  }
  pool_.resize(end);
}

}  // namespace moorage::workspace
