// Whether the program was built with a sanitizer, whose own memory and time are not the product's.
#pragma once

namespace moorage::test {

#ifdef MOORAGE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace moorage::test
