#include "cli/client/json_items.h"

#include "base/error.h"

namespace moorage::cli {
namespace {

constexpr size_t kLargestBytes = 4 << 20;

}  // namespace

void JsonItems::feed(std::string_view bytes) {
  for (const char c : bytes) take(c);
}

void JsonItems::take(char c) {
  const bool was_inside = inside_item();
  if (in_text_) {
    in_text_ = escaped_ || c != '"';
    escaped_ = !escaped_ && c == '\\';
  } else if (c == '"') {
    in_text_ = true;
  } else if (c == '{' || c == '[') {
    ++depth_;
    if (c == '[' && array_depth_ == 0 && !array_over_) array_depth_ = depth_;
  } else if ((c == '}' || c == ']') && depth_ > 0) {
    if (depth_ == array_depth_) {
      array_depth_ = 0;
      array_over_ = true;
    }
    --depth_;
  }
  const bool between = array_depth_ > 0 && depth_ == array_depth_ && c != '[';
  if (was_inside || inside_item()) {
    item_ += c;
  } else if (!between) {
    rest_ += c;
  }
  if (item_.size() > kLargestBytes || rest_.size() > kLargestBytes)
    throw Error(Code::corrupted, "the daemon's answer has an element larger than 4 MiB");
  if (!was_inside || inside_item()) return;
  on_item_(Json::parse(item_));
  item_.clear();
}

Json JsonItems::finish() const {
  if (depth_ != 0 || in_text_) throw Error(Code::corrupted, "the daemon's answer ended too early");
  return Json::parse(rest_);
}

}  // namespace moorage::cli
