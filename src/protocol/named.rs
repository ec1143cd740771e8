// SPDX-License-Identifier: GPL-2.0-only

//! Enums with counters and names for their variants.

/// Defines an enum without fields, with `ALL`, `index()` and `name()`.
macro_rules! named_enum {
    (
        $(#[$meta:meta])*
        $vis:vis enum $Name:ident {
            $($(#[$doc:meta])* $variant:ident = $text:literal,)*
        }
    ) => {
        $(#[$meta])*
        $vis enum $Name {
            $($(#[$doc])* $variant,)*
        }

        impl $Name {
            /// All variants.
            $vis const ALL: [$Name; [$($text),*].len()] = [$($Name::$variant),*];

            /// Returns the index among all variants, for counters.
            $vis const fn index(self) -> usize {
                self as usize
            }

            /// Returns a short name for statistics and traces.
            $vis const fn name(self) -> &'static str {
                match self {
                    $($Name::$variant => $text,)*
                }
            }
        }
    };
}
#[allow(unused_imports, reason = "the host's crate has no user outside")]
pub(crate) use named_enum;
