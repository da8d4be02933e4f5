// Paths of URLs, where a rule is about them.
#pragma once

#include <string>
#include <string_view>

namespace moorage::base {

// Whether every server reads it as the same path: no escapes of what separates parts, no parts like
// "..", nothing that one of them would cut off or join.
bool is_plain_path(std::string_view path);
// In its usual spelling: escapes of letters, digits, '-', '_' and '~' are replaced by what they
// stand for, as servers do (RFC 3986, 6.2.2), the others have upper-case digits.
std::string usual_path(std::string_view path);
// "/a" covers itself and "/a/b"; "/a/" covers all that begins with it. Both in the usual spelling.
bool path_is_below(std::string_view path, std::string_view prefix);

}  // namespace moorage::base
