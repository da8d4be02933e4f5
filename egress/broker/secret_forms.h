// The forms in which a host may repeat a secret that it got: as it is, or as common libraries write
// it into URLs, JSON, HTML, Base64 and hexadecimal digits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace moorage::egress {

// Each once; the secret itself comes first.
std::vector<std::string> secret_forms(const std::string& secret);

}  // namespace moorage::egress
