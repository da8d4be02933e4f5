#include "link/fate.h"

#include "base/log.h"
#include "base/os/files.h"
#include "base/wire/link_config.h"

namespace moorage::link {

void Fate::set_begun() const { base::write_file(directory_ + "/" + base::kLinkBegun, ""); }

bool Fate::begun() const { return base::path_exists(directory_ + "/" + base::kLinkBegun); }

void Fate::set_gone(const std::string& reason) const {
  const std::string text = base::escape_for_message(reason).substr(0, base::kMaxLinkGoneBytes);
  base::write_file_durable(directory_ + "/" + base::kLinkGone, text);
}

}  // namespace moorage::link
