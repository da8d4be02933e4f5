#include "workspace/upkeep/quota_use.h"

#include <algorithm>

#include "base/size_text.h"

namespace moorage::workspace {

uint64_t minus(uint64_t from, uint64_t what) { return from - std::min(from, what); }

bool is_over(const layers::QuotaUse& use, const layers::QuotaLimit& limit) {
  return (limit.bytes > 0 && use.bytes > limit.bytes) ||
         (limit.files > 0 && use.files.value_or(0) > limit.files);
}

bool has_grown(const layers::QuotaUse& now, const layers::QuotaUse& before) {
  return now.bytes > before.bytes + kSlackBytes ||
         now.files.value_or(0) > before.files.value_or(0) + kSlackFiles;
}

layers::QuotaUse plus(const layers::QuotaUse& use, const layers::QuotaUse& more) {
  return {use.bytes + more.bytes, use.files.value_or(0) + more.files.value_or(0)};
}

layers::QuotaUse minus(const layers::QuotaUse& use, const layers::QuotaUse& less) {
  return {minus(use.bytes, less.bytes), minus(use.files.value_or(0), less.files.value_or(0))};
}

double fullness(const layers::QuotaUse& use, const layers::QuotaLimit& limit) {
  const auto part = [](uint64_t used, uint64_t of) {
    return of == 0 ? 0.0 : static_cast<double>(used) / static_cast<double>(of);
  };
  return std::max(part(use.bytes, limit.bytes), part(use.files.value_or(0), limit.files));
}

std::string text_of(const layers::QuotaUse& use, const layers::QuotaLimit& limit) {
  std::string text = base::size_text(use.bytes);
  if (limit.bytes > 0) text += " of " + base::size_text(limit.bytes);
  if (use.files) text += ", " + std::to_string(*use.files);
  if (use.files && limit.files > 0) text += " of " + std::to_string(limit.files);
  return text + (use.files ? " files" : "");
}

}  // namespace moorage::workspace
