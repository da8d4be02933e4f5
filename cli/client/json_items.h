// The elements of the first array in a JSON answer, one at a time: an answer of any length takes
// the memory of one element.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "cli/client/json.h"

namespace moorage::cli {

class JsonItems {
 public:
  explicit JsonItems(std::function<void(const Json&)> on_item) : on_item_(std::move(on_item)) {}
  // Elements are objects. Throws Error(corrupted) when one exceeds 4 MiB or is invalid JSON.
  void feed(std::string_view bytes);
  // The answer without the elements; throws Error(corrupted) when it is incomplete.
  Json finish() const;

 private:
  void take(char c);
  bool inside_item() const { return array_depth_ > 0 && depth_ > array_depth_; }

  const std::function<void(const Json&)> on_item_;
  std::string item_;
  std::string rest_;
  size_t depth_ = 0;
  size_t array_depth_ = 0;  // of the first array; 0: before or after it
  bool array_over_ = false;
  bool in_text_ = false;
  bool escaped_ = false;
};

}  // namespace moorage::cli
